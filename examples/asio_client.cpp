// A client of the JSON-lines protocol in C++, with only Boost.Asio and a JSON library. Sends several prompts at once
// over one connection. Shows each answer when it is complete, and the first one as it comes.
//   asio_client HOST PORT PROMPT...

#include <cstddef>
#include <iostream>
#include <istream>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/write.hpp>
#include <nlohmann/json.hpp>

namespace {

using boost::asio::ip::tcp;
using nlohmann::json;

/// One connection. Runs on the given io_context. Nothing here blocks.
class Client {
 public:
  Client(boost::asio::io_context& io, std::vector<std::string> prompts)
      : socket_(io), resolver_(io), prompts_(std::move(prompts)) {}

  /// Returns 0 once every prompt has its answer.
  int exit_code() const { return num_left_ == 0 ? 0 : 1; }

  void start(const std::string& host, const std::string& port) {
    num_left_ = prompts_.size();
    resolver_.async_resolve(host, port, [this](auto error, const auto& endpoints) {
      if (error) return complain(error);
      boost::asio::async_connect(socket_, endpoints, [this](auto failure, const tcp::endpoint&) {
        if (failure) return complain(failure);
        submit();
        read();
      });
    });
  }

 private:
  /// Submits all prompts. The client chooses the id of a request. Events name it, so answers may come in any order.
  void submit() {
    for (std::size_t i = 0; i < prompts_.size(); ++i) {
      const json request{{"id", std::to_string(i)}, {"prompt", prompts_[i]}, {"max_tokens", 24}, {"temperature", 0}};
      output_ += request.dump() + "\n";
    }
    boost::asio::async_write(socket_, boost::asio::buffer(output_), [this](auto error, std::size_t) {
      if (error) complain(error);
    });
  }

  void read() {
    boost::asio::async_read_until(socket_, input_, '\n', [this](auto error, std::size_t) {
      if (error) return complain(error);
      std::istream lines(&input_);
      std::string line;
      std::getline(lines, line);
      on_event(json::parse(line));
      if (num_left_ > 0) return read();
      socket_.close();
    });
  }

  void on_event(const json& event) {
    const auto& id = event["id"];
    if (event["event"] == "delta" && id == "0") {
      std::cout << event["text"].get<std::string>() << std::flush;
    } else if (event["event"] == "done") {
      --num_left_;
      if (id == "0") {
        std::cout << "\n";
      } else {
        std::cout << "[" << id.get<std::string>() << "] " << event["outputs"][0]["text"].get<std::string>() << "\n";
      }
    } else if (event["event"] == "error") {
      std::cerr << "asio_client: " << event["error"]["message"].get<std::string>() << "\n";
      socket_.close();  // main sees num_left_
    }
  }

  void complain(const boost::system::error_code& error) {
    if (error != boost::asio::error::operation_aborted) std::cerr << "asio_client: " << error.message() << "\n";
  }

  tcp::socket socket_;
  tcp::resolver resolver_;
  std::vector<std::string> prompts_;
  std::size_t num_left_ = 0;
  std::string output_;
  boost::asio::streambuf input_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: asio_client HOST PORT PROMPT...\n";
    return 2;
  }
  boost::asio::io_context io;
  Client client(io, {argv + 3, argv + argc});
  client.start(argv[1], argv[2]);
  io.run();
  return client.exit_code();
}
