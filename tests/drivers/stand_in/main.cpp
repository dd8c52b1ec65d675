// Stands in for a framework and its driver: the host and the ranks of docs/driver-protocol.md, in C++ and without Python. What it is told to be
// by its name it does right, or wrong in one way. Ranks add their gradients up, average them in step(), and step by SGD.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "tests/drivers/stand_in/rank.h"

namespace gradledger::stand_in {
namespace {

json hello_of(const std::string& name, const char* kind) {
  json out{{"type", "hello"}, {"protocol", name == "of-another-version" ? 99 : 1}, {"kind", kind}, {"process", getpid()}};
  if (std::string(kind) == "group") return out;
  out["driver"] = name;
  out["versions"] = {{"stand-in", "1.0"}};
  out["capabilities"] = {{"events", {"forward", "backward", "step", "zero_grad"}}, {"frameworks", {"external"}}, {"applied_gradients", name != "black-box"}, {"weights", true}};
  if (name.starts_with("streams")) out["capabilities"]["streams"] = true;
  return out;
}

pid_t start_rank(const std::string& name, const json& order) {
  const pid_t process = fork();
  if (process != 0) return process;
  const int errors = open(order["errors"].get<std::string>().c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(errors, 2);
  dup2(errors, 1);
  json events = hello_of(name, "driver"), group = hello_of(name, "group");
  for (json* hello : {&events, &group}) {
    (*hello)["rank"] = order["rank"];
    (*hello)["world_size"] = order["world_size"];
  }
  _exit(play_rank(name, order["rank"], order["world_size"], events, group));
}

int host(const std::string& name) {
  if (name == "never-there") return 7;
  Wire wire(hello_of(name, "host"));
  std::map<pid_t, std::uint32_t> ranks;
  while (true) {
    // The command and the ends of ranks are looked for in turn.
    const auto order = wire.receive_within(20);
    if (!order && wire.closed()) {
      for (const auto& [process, rank] : ranks) kill(process, SIGKILL);
      return 0;
    }
    if (order && name == "lets-go-before-it-ends") {
      wire.close();
      usleep(100'000);
      return 3;
    }
    if (order && (*order)["type"] == "start") {
      const pid_t process = start_rank(name, *order);
      ranks[process] = (*order)["rank"];
      wire.send({{"type", "started"}, {"rank", (*order)["rank"]}, {"process", process}});
    }
    if (order && (*order)["type"] == "end")
      for (const auto& [process, rank] : ranks)
        if (rank == (*order)["rank"]) kill(process, SIGKILL);
    int status = 0;
    for (pid_t ended = waitpid(-1, &status, WNOHANG); ended > 0; ended = waitpid(-1, &status, WNOHANG)) {
      json message{{"type", "ended"}, {"rank", ranks[ended]}, {"process", ended}};
      if (WIFSIGNALED(status)) message["signal"] = WTERMSIG(status);
      else message["code"] = WEXITSTATUS(status);
      wire.send(message);
      ranks.erase(ended);
    }
  }
}

}  // namespace
}  // namespace gradledger::stand_in

// As the command calls Python: -m gradledger.host NAME --backend BACKEND.
int main(int argc, char** argv) {
  if (argc < 4) return 64;
  signal(SIGPIPE, SIG_IGN);
  return gradledger::stand_in::host(argv[3]);
}
