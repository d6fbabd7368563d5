#pragma once

/// Has the main program call `preparation` before the first test; what that throws ends the run.
/// Called while the program's globals are initialised: `const int registered = before_tests(f);`
int before_tests(void (*preparation)());
