# SPDX-License-Identifier: Apache-2.0
# What the tests need beyond one program per file.
if(LIGHTC_BUILD_FUZZERS AND EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/CMakeLists.txt)
  add_subdirectory(fuzz)
endif()
# The networks of the benchmarks, trained under the laws.
target_sources(test_laws PRIVATE ${PROJECT_SOURCE_DIR}/bench/models.c)
target_include_directories(test_laws PRIVATE ${PROJECT_SOURCE_DIR})
add_subdirectory(reference)
# The same networks, trained beside PyTorch (where LIGHTC_PEERS_PYTHON names a Python that has it).
target_sources(test_torch PRIVATE ${PROJECT_SOURCE_DIR}/bench/models.c)
target_include_directories(test_torch PRIVATE ${PROJECT_SOURCE_DIR})
