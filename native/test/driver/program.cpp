// Runs one scenario by name: a small program of the driver API, which asks for the driver as any program does.
#include "scenarios.h"

int main(int count, char** arguments) {
  static const Named scenarios[] = {
#define ENTRY(name) {#name, scenario##name},
      SCENARIOS(ENTRY)
#undef ENTRY
  };
  for (const Named& scenario : scenarios) {
    if (count != 2 || strcmp(scenario.name, arguments[1]) != 0) continue;
    scenario.run();
    printf("%s holds\n", scenario.name);
    return 0;
  }
  fprintf(stderr, "usage: %s SCENARIO\n", arguments[0]);
  for (const Named& scenario : scenarios) fprintf(stderr, "  %s\n", scenario.name);
  return 2;
}
