// Writes the made-up ledgers that tests/browser looks at: sample_ledger FOLDER, in its folders ledger and hostile.

#include <cstdio>
#include <string>
#include <vector>

#include "bench/ledger.h"
#include "bench/report/sample_ledger.h"

int main(int argc, char** argv) {
  using namespace kazeia;
  if (argc != 2) return 2;
  const std::string folder = argv[1];
  const std::vector<bench::Record> records = bench::report::sample_ledger();
  Status status = bench::Ledger(folder + "/ledger").append(records);
  // The machines' records have to be in the order of time of each; two of the hostile one make a history.
  bench::Record hostile = bench::report::hostile_record();
  if (status.ok()) status = bench::Ledger(folder + "/hostile").append(hostile);
  hostile.time = "2026-11-29T12:00:00Z";
  hostile.disturbance = hostile.note;
  bench::seal(hostile);
  if (status.ok()) status = bench::Ledger(folder + "/hostile").append(hostile);
  if (status.ok()) return 0;
  std::fprintf(stderr, "sample_ledger: %s\n", status.error().sentence().c_str());
  return 1;
}
