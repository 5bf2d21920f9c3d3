//! A codec for empty messages, which need no generated code.

use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

#[derive(Default)]
pub struct Empty;

impl Codec for Empty {
    type Encode = ();
    type Decode = ();
    type Encoder = Empty;
    type Decoder = Empty;

    fn encoder(&mut self) -> Empty {
        Empty
    }

    fn decoder(&mut self) -> Empty {
        Empty
    }
}

impl Encoder for Empty {
    type Item = ();
    type Error = Status;

    fn encode(&mut self, _message: (), _bytes: &mut EncodeBuf<'_>) -> Result<(), Status> {
        Ok(())
    }
}

impl Decoder for Empty {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, _bytes: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        Ok(Some(()))
    }
}
