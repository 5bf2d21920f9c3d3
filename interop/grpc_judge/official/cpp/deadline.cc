// Replaces test/core/util/test_config.cc, of which the server needs only this function.

#include <stdint.h>

#include <grpc/support/time.h>

gpr_timespec grpc_timeout_milliseconds_to_deadline(int64_t time_ms) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_millis(time_ms, GPR_TIMESPAN));
}
