"""The committed protobuf code: `make protos` generates exactly this code, and it does not shadow grpcio's packages."""

from __future__ import annotations

import importlib
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from grpc_judge import generate

ROOT = Path(__file__).parents[3]
COMMITTED = ROOT / "interop" / generate.GENERATED


def without_sources(file):
    """Return a file's descriptor without comments and JSON names, which generated code does not have."""
    plain = FileDescriptorProto()
    plain.CopyFrom(file)
    plain.ClearField("source_code_info")
    messages = list(plain.message_type)
    while messages:
        message = messages.pop()
        messages.extend(message.nested_type)
        for field in message.field:
            field.ClearField("json_name")
    return plain


def module_of(file):
    """Return the committed module for a .proto file."""
    return importlib.import_module(file.name.removesuffix(".proto").replace("/", ".") + "_pb2")


def test_committed_code_says_what_the_protos_say():
    """IO-1, IO-3: the committed code has the messages, fields and methods of `protos/`."""
    files = [file for file in generate.moved() if file.name.startswith(generate.GENERATED)]
    assert {file.package for file in files} == {"grpc.testing", "interop.v1"}
    for file in files:
        committed = FileDescriptorProto()
        module_of(file).DESCRIPTOR.CopyToProto(committed)
        assert without_sources(committed) == without_sources(file)


def test_no_committed_file_is_left_over(tmp_path):
    """IO-1, IO-3: any version of the generator writes files with the names of the committed ones."""
    assert sorted(contents(tmp_path_generated(tmp_path))) == sorted(contents(COMMITTED))


@pytest.mark.skipif(
    generate.generator() != generate.GENERATOR,
    reason=f"the committed code is grpcio-tools {generate.GENERATOR}'s; `make test-oldest` has that",
)
def test_generating_anew_changes_nothing(tmp_path):
    """IO-1, IO-3: the generator's output is the committed code, byte for byte."""
    assert contents(tmp_path_generated(tmp_path)) == contents(COMMITTED)


def tmp_path_generated(tmp_path):
    generate.generate(tmp_path)
    return tmp_path / generate.GENERATED


def contents(folder):
    files = (path for kind in ("*_pb2*.py", "*.pyi", "*/__init__.py") for path in folder.glob(f"**/{kind}"))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_generated_packages_stay_clear_of_grpcs():
    """IO-1: no generated package is called `grpc`, so the proto package `grpc.testing` shadows nothing."""
    assert Path(grpc.__file__).parent.name == "grpc"
    assert ROOT not in Path(grpc.__file__).parents or "site-packages" in grpc.__file__
    assert not [path for path in COMMITTED.glob("**/grpc") if path.is_dir()]
