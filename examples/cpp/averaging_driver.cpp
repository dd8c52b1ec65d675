// The same wrapper in a process for each rank: gradledger replay averaging.json --producer program:./averaging_driver
#include <gradledger/driver.hpp>

#include "averaging_judged.h"

int main() { return gradledger::serve(gradledger::ranks<Judged>("averaging", 4)); }
