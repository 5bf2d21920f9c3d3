#!/bin/sh
# Builds gRPC's own server of the reconnect test, unchanged, as build/reconnect_server.
#
# No binary package has it; the source comes from the source package of the distribution's libgrpc++. Needs
# libgrpc++-dev, libabsl-dev, libprotobuf-dev, protobuf-compiler-grpc and pkg-config, but not root: apt's files are kept
# in build/.
set -eu
cd "$(dirname "$0")"
mkdir -p build
cd build

version=$(dpkg-query --showformat='${source:Version}' --show libgrpc++-dev)
[ "$version" = "$(cat made 2>/dev/null)" ] && exit 0

# Use the source packages of the same repositories that the packages came from.
mkdir -p apt/sources apt/lists/partial apt/cache/archives/partial
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
  grep -qsE 'debian|ubuntu' "$file" || continue
  sed -E 's/^Types:.*/Types: deb-src/; s/^deb /deb-src /' "$file" > "apt/sources/$(basename "$file")"
done
apt="-qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=$PWD/apt/sources
  -o Dir::State::lists=$PWD/apt/lists -o Dir::Cache=$PWD/apt/cache"
apt-get $apt update
apt-get $apt source --download-only "grpc=$version"

mkdir -p grpc
tar --extract --file grpc_*.orig.tar.* --strip-components 1 --directory grpc --wildcards \
  '*/src/core/*.h' '*/src/proto/grpc/testing/*.proto' '*/test/core/util/*' '*/test/cpp/interop/reconnect*' '*/test/cpp/util/*'
cd grpc
protoc -I. --cpp_out=. --grpc_out=. --plugin="protoc-gen-grpc=$(command -v grpc_cpp_plugin)" \
  src/proto/grpc/testing/empty.proto src/proto/grpc/testing/messages.proto src/proto/grpc/testing/test.proto
g++ -std=c++17 -w -I. -Isrc/core/ext/upb-generated -o ../reconnect_server \
  test/cpp/interop/reconnect_interop_server.cc test/cpp/util/test_config_cc.cc \
  test/core/util/reconnect_server.cc test/core/util/test_tcp_server.cc ../../deadline.cc \
  src/proto/grpc/testing/*.pb.cc \
  $(pkg-config --libs grpc++ protobuf absl_flags_parse)
cd ..
echo "$version" > made
