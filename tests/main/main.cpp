// The main function of all GoogleTest programs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  const int code = RUN_ALL_TESTS();
  const testing::UnitTest& tests = *testing::UnitTest::GetInstance();
  constexpr int kSkipped = 77;  // which ctest reports as skipped
  return code == 0 && tests.successful_test_count() == 0 && tests.skipped_test_count() > 0 ? kSkipped : code;
}
