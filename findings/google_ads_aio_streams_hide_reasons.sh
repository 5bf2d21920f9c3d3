#!/usr/bin/env bash
# With asyncio, a streamed search of Google Ads that is refused does not raise the error that says why.
#
# Versions: google-ads 34.0.0 (API v26) with google-api-core 2.44.0 and grpcio 1.85.3; Python 3.11 or newer, Linux. The
# client turns a refusal into a GoogleAdsException, whose `failure` lists what is wrong with the request, and
# `use_proto_plus=False` asks for plain protobuf messages. A server with the protocol of Google Ads refuses a query with
# INVALID_ARGUMENT and the failure in the trailers: `search`, `search_stream` at once, and `search_stream` after a first
# message. Both clients, with threads and with `is_async=True`, call all three.
#
# Seen: with threads, all three raise GoogleAdsException with the reason. With asyncio, `search` does, and both streams
# raise google.api_core's InvalidArgument, although the failure is in its trailers; their message is of proto-plus,
# which was not asked for. The interceptor of streams (`AsyncUnaryStreamExceptionInterceptor`) inherits from those of
# both kinds, and a channel of grpc.aio uses an interceptor for the first kind that it finds, unary calls. So the
# `except GoogleAdsException` of a program that moves to asyncio does not see the refusals of its streams any more.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet google-ads==34.0.0 google-api-core==2.44.0 \
  grpcio==1.85.3 trustme==1.2.1
cat > "$folder/see.py" <<'PYTHON'
import asyncio, concurrent.futures, logging, os, sys, time
import google.oauth2.credentials
import grpc
import trustme
from google.ads.googleads.client import GoogleAdsClient
from google.ads.googleads.v26.errors.types.errors import GoogleAdsError, GoogleAdsFailure
from google.ads.googleads.v26.services.types import google_ads_service as ads
from google.protobuf.message import Message

SERVICE = "google.ads.googleads.v26.services.GoogleAdsService"
FAILURE = GoogleAdsFailure.serialize(GoogleAdsFailure(errors=[GoogleAdsError(message="no such field")]))
KEY = "google.ads.googleads.v26.errors.googleadsfailure-bin"
logging.disable()  # of refusals


def refuse(context):
    context.set_trailing_metadata(((KEY, FAILURE), ("request-id", "1")))
    context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Request contains an invalid argument.")


def search(request, context):
    refuse(context)


def search_stream(request, context):
    if request.query == "late":
        yield ads.SearchGoogleAdsStreamResponse(request_id="1")
        time.sleep(1)
    refuse(context)


def handler(kind, method, request, response):
    return kind(method, request_deserializer=request.deserialize, response_serializer=response.serialize)


def start():
    """Start a server with a certificate that this process trusts; return it and its address."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(f"{sys.argv[1]}/ca.pem")
    os.environ["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"] = f"{sys.argv[1]}/ca.pem"
    issued = authority.issue_cert("localhost")
    chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
    credentials = grpc.ssl_server_credentials([(issued.private_key_pem.bytes(), chain)])
    requests = ads.SearchGoogleAdsRequest, ads.SearchGoogleAdsStreamRequest
    responses = ads.SearchGoogleAdsResponse, ads.SearchGoogleAdsStreamResponse
    methods = {
        "Search": handler(grpc.unary_unary_rpc_method_handler, search, requests[0], responses[0]),
        "SearchStream": handler(grpc.unary_stream_rpc_method_handler, search_stream, requests[1], responses[1]),
    }
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(5))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    address = f"localhost:{server.add_secure_port('localhost:0', credentials)}"
    server.start()
    return server, address


def describe(error, messages):
    """Return the error's type, its reason if it has one, if its trailers do, and if messages are plain protobuf."""
    failure, call = getattr(error, "failure", None), getattr(error, "response", None)
    trailers = [key for key, _ in call.trailing_metadata()] if call else []
    reason = failure and failure.errors[0].message
    return type(error).__name__, reason, KEY in trailers, [isinstance(each, Message) for each in messages]


def with_threads(service, method, query):
    messages = []
    try:
        messages.extend(getattr(service, method)(request={"customer_id": "1", "query": query}, timeout=20))
    except Exception as error:
        return describe(error, messages)


async def with_asyncio(service, method, query):
    messages = []
    try:
        async for message in await getattr(service, method)(request={"customer_id": "1", "query": query}, timeout=20):
            messages.append(message)
    except Exception as error:
        return describe(error, messages)


CASES = ("search", ""), ("search_stream", ""), ("search_stream", "late")


async def all_with_asyncio(client):
    service = client.get_service("GoogleAdsService", is_async=True)
    seen = [await with_asyncio(service, *case) for case in CASES]
    await service.transport.close()
    return seen


server, address = start()
token = google.oauth2.credentials.Credentials("token")
client = GoogleAdsClient(token, developer_token="d", endpoint=address, version="v26", use_proto_plus=False)
service = client.get_service("GoogleAdsService")
threads = [with_threads(service, *case) for case in CASES]
service.transport.close()
loop = asyncio.run(all_with_asyncio(client))
server.stop(None)
print("the error, its reason, whether its trailers have the failure, and whether the messages are plain protobuf:")
for name, seen in ("threads", threads), ("asyncio", loop):
    print(f"{name}: " + ", ".join(f"{' '.join(case).strip()}: {each}" for case, each in zip(CASES, seen)))
good = ["GoogleAdsException", "no such field", False]
right = [each and list(each[:3]) for each in threads] == [good] * 3 and list(loop[0][:3]) == good
right = right and loop[1] == ("InvalidArgument", None, True, []) == (*loop[2][:3], []) and loop[2][3] == [False]
sys.exit(None if right else "This behaviour has changed.")
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
