// The host program for tests that start it many times: most of a command's time is libtorch's
// start, which happens here once, and a fork runs the command. The input has strings that end with
// zeros: the number of the program's arguments, the files of its three streams, and the arguments.
// The answer is a line with its exit code, or minus its signal. host_program.py asks.

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

// main() of the host program, under this name.
int warpfuse_main(int argc, char** argv);

namespace {

constexpr int kStreams = 3;
constexpr int kNotRun = 126;

[[noreturn]] void run(std::vector<std::string> words) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // it may be killed because this takes too long
  for (int stream = 0; stream < kStreams; ++stream) {
    const int flags = stream == STDIN_FILENO ? O_RDONLY : O_WRONLY | O_TRUNC;
    const int file = open(words[static_cast<size_t>(stream)].c_str(), flags | O_CLOEXEC);
    if (file < 0 || dup2(file, stream) < 0) {
      std::_Exit(kNotRun);
    }
  }
  std::vector<char*> arguments;
  for (size_t i = kStreams; i < words.size(); ++i) {
    arguments.push_back(words[i].data());
  }
  const int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  const int code = warpfuse_main(count, arguments.data());
  std::fflush(nullptr);
  std::_Exit(code);  // libtorch's destructors take as long as its start
}

}  // namespace

int main() {
  std::string word;
  while (std::getline(std::cin, word, '\0')) {
    std::vector<std::string> words(kStreams + std::stoul(word));
    for (std::string& next : words) {
      std::getline(std::cin, next, '\0');
    }
    const pid_t child = fork();
    if (child == 0) {
      run(words);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) {
      return EXIT_FAILURE;
    }
    std::cout << (WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status)) << std::endl;
  }
  return EXIT_SUCCESS;
}
