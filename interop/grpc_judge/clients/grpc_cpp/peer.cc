// Keeps one channel of gRPC's C++ library busy. clients/README.md
// documents its arguments and output.

#include <absl/status/status.h>
#include <getopt.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <fstream>
#include <future>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr char kMethod[] = "/grpc.testing.TestService/EmptyCall";
// How long running calls may continue when the time has passed.
constexpr std::chrono::seconds kGrace{1};

// The command-line arguments: values by the names of the options.
using Told = std::map<std::string, std::string>;

Told ReadCommandLine(int argc, char** argv) {
  const option known[] = {
      {"target", required_argument, nullptr, 0},
      {"seconds", required_argument, nullptr, 0},
      {"workers", required_argument, nullptr, 0},
      {"pause-ms", required_argument, nullptr, 0},
      {"ca", required_argument, nullptr, 0},
      {"initial-ms", required_argument, nullptr, 0},
      {"max-ms", required_argument, nullptr, 0},
      {"min-connect-timeout-ms", required_argument, nullptr, 0},
      {nullptr, 0, nullptr, 0},
  };
  Told told = {{"workers", "1"}, {"pause-ms", "20"}};
  int index = 0;
  for (int found; (found = getopt_long(argc, argv, "", known, &index)) != -1;) {
    if (found != 0) std::exit(2);
    told[known[index].name] = optarg;
  }
  return told;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    std::cerr << "cannot read " << path << "\n";
    std::exit(1);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

grpc::ChannelArguments ArgumentsFrom(const Told& told) {
  const std::map<std::string, std::string> names = {
      {"initial-ms", GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS},
      {"max-ms", GRPC_ARG_MAX_RECONNECT_BACKOFF_MS},
      // Despite its name, this is MIN_CONNECT_TIMEOUT.
      {"min-connect-timeout-ms", GRPC_ARG_MIN_RECONNECT_BACKOFF_MS},
  };
  grpc::ChannelArguments arguments;
  for (const auto& [option, name] : names) {
    if (const auto found = told.find(option); found != told.end()) {
      arguments.SetInt(name, std::stoi(found->second));
    }
  }
  return arguments;
}

std::shared_ptr<grpc::ChannelCredentials> CredentialsFrom(const Told& told) {
  const auto ca = told.find("ca");
  if (ca == told.end()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = ReadFile(ca->second);
  return grpc::SslCredentials(options);
}

// The outcomes of the calls, and the running calls.
class Tally {
 public:
  void Begin(grpc::ClientContext* context) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++made_;
    running_.insert(context);
  }

  void End(grpc::ClientContext* context, const grpc::Status& status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    running_.erase(context);
    if (status.ok()) {
      ++ok_;
    } else if (!cut_off_) {
      const auto code = static_cast<absl::StatusCode>(status.error_code());
      ++failed_[absl::StatusCodeToString(code)];
    }
  }

  // Cancels running calls, which count as unfinished instead of failed.
  void CutOff() {
    const std::lock_guard<std::mutex> lock(mutex_);
    cut_off_ = true;
    for (grpc::ClientContext* context : running_) context->TryCancel();
  }

  void Say() const {
    int unfinished = made_ - ok_;
    std::string failed;
    for (const auto& [code, count] : failed_) {
      unfinished -= count;
      failed += failed.empty() ? "" : ", ";
      failed += "\"" + code + "\": " + std::to_string(count);
    }
    std::cout << R"({"event": "done", "made": )" << made_ << R"(, "ok": )"
              << ok_ << R"(, "failed": {)" << failed << R"(}, "unfinished": )"
              << unfinished << R"(, "versions": {"grpc++": ")"
              << grpc::Version() << R"(", "c++": ")" << __VERSION__ << "\"}}"
              << std::endl;
  }

 private:
  std::mutex mutex_;
  std::set<grpc::ClientContext*> running_;
  bool cut_off_ = false;
  int made_ = 0;
  int ok_ = 0;
  std::map<std::string, int> failed_;
};

// Makes one call, and waits for its end; nothing else uses the queue meanwhile.
grpc::Status CallOnce(grpc::GenericStub& stub, grpc::ClientContext& context,
                      grpc::CompletionQueue& queue) {
  const grpc::Slice empty;
  const grpc::ByteBuffer request(&empty, 1);
  grpc::ByteBuffer response;
  grpc::Status status;
  const auto call = stub.PrepareUnaryCall(&context, kMethod, request, &queue);
  call->StartCall();
  call->Finish(&response, &status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  return status;
}

// Makes calls until the time has passed.
void KeepBusy(grpc::GenericStub& stub, const Told& told, Tally& tally) {
  const std::chrono::milliseconds pause(std::stoi(told.at("pause-ms")));
  const std::chrono::duration<double> seconds(std::stod(told.at("seconds")));
  const auto over =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds);
  const auto work = [&](int number) {
    grpc::CompletionQueue queue;
    for (int call = 0; Clock::now() < over; ++call) {
      grpc::ClientContext context;
      context.set_wait_for_ready(number % 2 == 1);
      context.AddMetadata("call-id", std::to_string(number) + "-" + std::to_string(call));
      tally.Begin(&context);
      tally.End(&context, CallOnce(stub, context, queue));
      std::this_thread::sleep_for(pause);
    }
  };
  std::vector<std::future<void>> workers;
  for (int number = 0; number < std::stoi(told.at("workers")); ++number) {
    workers.push_back(std::async(std::launch::async, work, number));
  }
  for (const auto& worker : workers) worker.wait_until(over + kGrace);
  tally.CutOff();
  for (auto& worker : workers) worker.get();
}

}  // namespace

int main(int argc, char** argv) {
  const Told told = ReadCommandLine(argc, argv);
  std::cout << R"({"event": "ready"})" << std::endl;
  std::string line;
  if (!std::getline(std::cin, line)) return 0;

  grpc::GenericStub stub(grpc::CreateCustomChannel(
      told.at("target"), CredentialsFrom(told), ArgumentsFrom(told)));
  Tally tally;
  KeepBusy(stub, told, tally);
  tally.Say();
}
