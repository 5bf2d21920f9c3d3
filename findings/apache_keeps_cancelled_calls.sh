#!/usr/bin/env bash
# Behind Apache, a server never hears that a quiet call was cancelled, nor that its caller has gone.
#
# Versions: Apache httpd 2.4.71 with mod_http2 and mod_proxy_http2, and nginx 1.22.1 to compare (Debian 12's packages),
# grpcio 1.85.3 on both sides; Python 3.11 or newer, Debian 12. gRPC's guide to cancellation says that the server is
# told, so that it can stop its work. A client opens three streams without a deadline through `ProxyPass / h2c://...`
# (and nginx's `grpc_pass`): one on which the server says nothing, one with a first message only, and one with five
# messages a second. It cancels all three, and 5 s later closes its channel.
#
# Seen: with nginx, all three end on the server within a second of the cancellation. With Apache, only the busy stream
# does. The quiet ones go on, also after the end of the channel, until Apache's `Timeout` of 60 s has passed without a
# frame from the server. So each Health/Watch, subscription or long call that its caller gives up holds a thread of the
# server and a stream of the connection for a minute, or for as long as `Timeout` was raised to for the sake of long
# calls. A call with a deadline ends at its deadline, which the server knows itself.
set -euo pipefail
folder=$(mktemp -d)
chmod 755 "$folder" # Apache's workers run as another user.
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
(
  cd "$folder"
  apt-get download -qq 'apache2-bin=2.4.*' libapr1 libaprutil1 libnghttp2-14 'nginx=1.22.1*'
  for package in *.deb; do dpkg -x "$package" debian; done
) >&2
export PATH="$folder/debian/usr/sbin:$PATH" LD_LIBRARY_PATH="$folder/debian/usr/lib/$(uname -m)-linux-gnu"
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, pathlib, socket, subprocess, sys, time
import grpc

folder = pathlib.Path(sys.argv[1])
METHODS = ("Silent", "Quiet", "Busy")
APACHE = """
ServerName a
ServerRoot {here}
PidFile {here}/pid
DefaultRuntimeDir {here}
ErrorLog {here}/errors
Listen 127.0.0.1:{port}
Protocols h2c
User www-data
Group www-data
ProxyPass / h2c://127.0.0.1:{server}/
"""
NGINX = """
daemon off;
pid {here}/pid;
error_log {here}/errors;
events {{}}
http {{
  access_log off;
  client_body_temp_path {here}/body;
  proxy_temp_path {here}/proxy;
  fastcgi_temp_path {here}/fastcgi;
  uwsgi_temp_path {here}/uwsgi;
  scgi_temp_path {here}/scgi;
  server {{
    listen 127.0.0.1:{port} http2;
    location / {{ grpc_pass grpc://127.0.0.1:{server}; }}
  }}
}}
"""


def unused_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def start(name, server):
    """Start this proxy; return its process and its port."""
    here, port = folder / name, unused_port()
    here.mkdir(mode=0o755)
    text = {"apache": APACHE, "nginx": NGINX}[name].format(here=here, port=port, server=server)
    if name == "apache":
        modules = ("mpm_event", "authz_core", "http2", "proxy", "proxy_http2")
        there = folder / "debian/usr/lib/apache2/modules"
        loaded = [f"LoadModule {module}_module {there}/mod_{module}.so" for module in modules]
        text = "\n".join(loaded) + text
    file = here / "conf"
    file.write_text(text)
    command = {"apache": ["apache2", "-DFOREGROUND", "-f", file], "nginx": ["nginx", "-c", file]}[name]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return process, port
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"{name} has not started")


class Service:
    """Streams that end when they are cancelled, and note when they do."""

    def __init__(self):
        self.ended = {}

    def serve(self, method):
        def answer(request, context):
            context.add_callback(lambda: self.ended.setdefault(method, time.monotonic()))
            if method == "Quiet":
                yield b"a"
            while context.is_active():
                if method == "Busy":
                    yield b"a"
                time.sleep(0.2)

        return grpc.unary_stream_rpc_method_handler(answer)


def watch(name):
    """Return how many seconds after its cancellation each stream ended on the server (None: not within 80 s)."""
    service = Service()
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
    server.add_registered_method_handlers("a.B", {method: service.serve(method) for method in METHODS})
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    process, front = start(name, port)
    try:
        with grpc.insecure_channel(f"127.0.0.1:{front}") as channel:
            streams = {method: channel.unary_stream("/a.B/" + method)(b"") for method in METHODS}
            next(streams["Quiet"])
            next(streams["Busy"])
            time.sleep(0.5)
            for stream in streams.values():
                stream.cancel()
            cancelled = time.monotonic()
            time.sleep(5)
        while len(service.ended) < 3 and time.monotonic() < cancelled + 80:
            time.sleep(0.1)
        return {method: (at := service.ended.get(method)) and round(at - cancelled, 1) for method in METHODS}
    finally:
        process.terminate()
        process.wait()
        server.stop(0).wait()


apache, nginx = watch("apache"), watch("nginx")
print(f"seconds from the cancellation to the stream's end on the server:\nApache: {apache}\nnginx: {nginx}")
late = [apache["Silent"], apache["Quiet"]]
prompt = [apache["Busy"], *nginx.values()]
sys.exit(not (all(at is None or at > 20 for at in late) and all(at is not None and at < 4 for at in prompt)))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
