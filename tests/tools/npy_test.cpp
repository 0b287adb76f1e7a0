// Files as NumPy 2.4 wrote them, byte by byte, and round trips through our own writer.
#include "tools/npy.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "expr/core/array.h"
#include "expr/core/error.h"

namespace xhat::npy_test {
namespace {

std::vector<std::byte> bytes_of(const std::string& s) {
  auto* first = reinterpret_cast<const std::byte*>(s.data());
  return {first, first + s.size()};
}

// A file with this header text, padded as NumPy pads, and these data bytes.
std::string file_of(std::string header, const std::string& data, int version = 1) {
  size_t start = version == 1 ? 10 : 12;
  while ((start + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string f("\x93NUMPY", 6);
  f += static_cast<char>(version);
  f += '\0';
  f += static_cast<char>(header.size() & 0xff);
  f += static_cast<char>(header.size() >> 8);
  if (version > 1) f += std::string(2, '\0');
  return f + header + data;
}

Array read(const std::string& file) { return to_array(parse_npy(bytes_of(file), "x.npy")); }

std::string error_of(const std::string& file) {
  try {
    read(file);
  } catch (const Error& e) {
    return e.message();
  }
  return "no error";
}

#define EXPECT_MENTIONS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// numpy.save of numpy.array([[1.5, -2], [0, inf]], "<f4"), literally.
TEST(Npy, ReadsWhatNumpyWrote) {
  const unsigned char file[] = {
      0x93, 'N',  'U',  'M',  'P',  'Y',  0x01, 0x00, 0x76, 0x00, '{',  '\'', 'd',  'e',  's',  'c',
      'r',  '\'', ':',  ' ',  '\'', '<',  'f',  '4',  '\'', ',',  ' ',  '\'', 'f',  'o',  'r',  't',
      'r',  'a',  'n',  '_',  'o',  'r',  'd',  'e',  'r',  '\'', ':',  ' ',  'F',  'a',  'l',  's',
      'e',  ',',  ' ',  '\'', 's',  'h',  'a',  'p',  'e',  '\'', ':',  ' ',  '(',  '2',  ',',  ' ',
      '2',  ')',  ',',  ' ',  '}',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',
      ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',
      ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',
      ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  ' ',  '\n',
      0x00, 0x00, 0xc0, 0x3f, 0x00, 0x00, 0x00, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0x7f};
  std::string text(reinterpret_cast<const char*>(file), sizeof file);
  Array a = read(text);
  EXPECT_EQ(a, array_of(DType::f32, {2, 2}, {1.5, -2, 0, INFINITY}));
  // and the writer writes the very same file
  EXPECT_EQ(format_npy(to_npy(a)), bytes_of(text));
}

TEST(Npy, VersionsTwoAndThree) {
  for (int version : {2, 3}) {
    Array a =
        read(file_of("{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }", "\x01\x02\xff", version));
    EXPECT_EQ(a, array_of(DType::u8, {3}, {1, 2, 255}));
  }
}

TEST(Npy, BigEndian) {
  Array a = read(file_of("{'descr': '>i4', 'fortran_order': False, 'shape': (2,), }",
                         std::string("\x00\x00\x01\x02\xff\xff\xff\xfe", 8)));
  EXPECT_EQ(a, array_of(DType::i32, {2}, {258, -2}));
  a = read(file_of("{'descr': '>f8', 'fortran_order': False, 'shape': (), }",
                   std::string("\x3f\xf8\x00\x00\x00\x00\x00\x00", 8)));
  EXPECT_EQ(a, scalar_of(DType::f64, 1.5));
}

TEST(Npy, FortranOrder) {
  // [[1,2,3],[4,5,6]] column by column
  Array a =
      read(file_of("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }", "\x01\x04\x02\x05\x03\x06"));
  EXPECT_EQ(a, array_of(DType::u8, {2, 3}, {1, 2, 3, 4, 5, 6}));
  // shape (2,2,2) with x[i,j,k] = 4i + 2j + k
  a = read(file_of("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 2, 2), }",
                   std::string("\x00\x04\x02\x06\x01\x05\x03\x07", 8)));
  EXPECT_EQ(a, array_of(DType::u8, {2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(Npy, HalfFloatsAndBools) {
  Array half = read(file_of("{'descr': '<f2', 'fortran_order': False, 'shape': (2,), }",
                            std::string("\x00\x3e\x00\xfc", 4)));
  EXPECT_EQ(half, array_of(DType::f16, {2}, {1.5, -INFINITY}));
  Array brain =
      read(file_of("{'descr': '<u2', 'fortran_order': False, 'shape': (1,), }", std::string("\xc0\x3f", 2)));
  EXPECT_EQ(brain, array_of(DType::bf16, {1}, {1.5}));
  Array truth =
      read(file_of("{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }", std::string("\x00\x01", 2)));
  EXPECT_EQ(truth, array_of(DType::boolean, {2}, {0, 1}));
}

TEST(Npy, RoundTripsEveryType) {
  const DType types[] = {DType::f64, DType::f32, DType::f16, DType::bf16,   DType::i64,
                         DType::i32, DType::u32, DType::u8,  DType::boolean};
  const std::vector<int64_t> shapes[] = {{}, {6}, {2, 3}, {3, 1, 2}, {0}, {4, 0, 2}};
  for (DType type : types)
    for (const std::vector<int64_t>& shape : shapes) {
      std::vector<double> values;
      for (int64_t i = 0; i < element_count(shape); ++i)
        values.push_back(type == DType::boolean ? static_cast<double>(i % 2)
                                                : static_cast<double>(7 * i % 5));
      Array a = array_of(type, shape, values);
      EXPECT_EQ(to_array(parse_npy(format_npy(to_npy(a)), "x.npy")), a) << name_of(type) << shape_text(shape);
    }
}

TEST(Npy, LargeIntegersSurvive) {
  Array a = zeros(DType::i64, {2});
  a.integers = {std::numeric_limits<int64_t>::min(), (int64_t{1} << 62) + 1};
  EXPECT_EQ(to_array(parse_npy(format_npy(to_npy(a)), "x.npy")), a);
}

TEST(Npy, ThroughAFile) {
  std::string path = ::testing::TempDir() + "xhat_npy_test.npy";
  Array a = array_of(DType::f32, {2, 2}, {1, 2, 3, 4});
  write_npy(path, to_npy(a));
  EXPECT_EQ(to_array(read_npy(path)), a);
  std::remove(path.c_str());
  EXPECT_THROW(read_npy(path), Error);
  EXPECT_THROW(write_npy("/nonexistent-folder/x.npy", to_npy(a)), Error);
}

// What the file held before is still there, and nothing else is.
TEST(Npy, WhatCannotBeWrittenLeavesTheFileAsItWas) {
  namespace fs = std::filesystem;
  std::string folder = ::testing::TempDir() + "xhat_npy_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/x.npy";
  Array small = array_of(DType::f32, {2}, {1, 2});
  Array large = zeros(DType::f32, {1000});
  write_npy(path, to_npy(small));
  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit limited = before;
  limited.rlim_cur = 1000;  // bytes
  auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limited), 0);
  std::string said;
  for (const std::string& to : {path, folder + "/new.npy"}) try {
      write_npy(to, to_npy(large));
    } catch (const Error& e) {
      said += e.message() + "\n";
    }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(said, path + ": it cannot be written: File too large\n" + folder + "/new.npy: it cannot be written: File too large\n");
  EXPECT_EQ(to_array(read_npy(path)), small);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);

  // Through a link, the file that it points to is written, with the rights that it has.
  fs::permissions(path, fs::perms(0640));
  fs::create_symlink(path, folder + "/link.npy");
  write_npy(folder + "/link.npy", to_npy(large));
  EXPECT_TRUE(fs::is_symlink(folder + "/link.npy"));
  EXPECT_EQ(to_array(read_npy(path)), large);
  EXPECT_EQ(fs::status(path).permissions(), fs::perms(0640));
  EXPECT_THROW(write_npy("/dev/full", to_npy(small)), Error);
  EXPECT_THROW(write_npy(folder, to_npy(small)), Error);
  fs::remove_all(folder);
}

TEST(Npy, FoldersPipesAndDevicesAreNoArrays) {
  auto said = [](const std::string& path) {
    try {
      read_npy(path);
    } catch (const Error& e) {
      return e.message();
    }
    return std::string("no error");
  };
  EXPECT_MENTIONS(said(::testing::TempDir()), "it is a folder");
  EXPECT_MENTIONS(said("/dev/zero"), "no regular file");
  EXPECT_MENTIONS(said("/nonexistent/x.npy"), "it cannot be opened: No such file");
  std::string pipe = ::testing::TempDir() + "xhat_npy_pipe";
  std::remove(pipe.c_str());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_MENTIONS(said(pipe), "no regular file");  // at once, though nobody writes
  std::remove(pipe.c_str());
}

TEST(Npy, JunkInTheHeader) {
  const std::string dict = "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }";
  EXPECT_EQ(error_of(file_of(dict, "ab")), "no error");
  EXPECT_EQ(error_of(file_of(dict + " \t ", "ab")), "no error");
  for (const char* junk : {"x", " }", " {'descr': '|u1'}", "\x01", "  # a comment", ", 5"})
    EXPECT_MENTIONS(error_of(file_of(dict + junk, "ab")), "something follows its closing '}'");
  EXPECT_MENTIONS(error_of(file_of(dict + std::string(3, '\0'), "ab")), "something follows its closing '}'");
  EXPECT_MENTIONS(error_of(file_of("{'descr': '|u1', 'fortran_order': False, 'shape': (1,), 'shape': (2,)}", "ab")), "says 'shape' twice");
  EXPECT_MENTIONS(error_of(file_of("{'descr': '|u1', 'descr': '|u1', 'fortran_order': False, 'shape': (2,)}", "ab")), "says 'descr' twice");
  std::string minor = file_of(dict, "ab");
  minor[7] = 1;
  EXPECT_MENTIONS(error_of(minor), "version 1.1");
  std::string longer = file_of(dict, "ab");  // a header said to reach over the data
  longer[8] = static_cast<char>(longer[8] + 1);
  EXPECT_NE(error_of(longer), "no error");
}

TEST(Npy, Errors) {
  EXPECT_MENTIONS(error_of("hello, this is no array"), "x.npy: it is no .npy file");
  EXPECT_MENTIONS(error_of(""), "no .npy file");
  std::string good =
      file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", std::string(8, '\0'));
  EXPECT_EQ(error_of(good), "no error");
  EXPECT_MENTIONS(error_of(good.substr(0, good.size() - 1)),
                  "needs 2 values of 4 bytes, but it holds 7 bytes");
  EXPECT_MENTIONS(error_of(good + "x"), "it holds 9 bytes");
  EXPECT_MENTIONS(error_of(good.substr(0, 40)), "cut short in its header");
  std::string version = good;
  version[6] = 4;
  EXPECT_MENTIONS(error_of(version), "version 4.0");
  EXPECT_MENTIONS(
      error_of(file_of("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", std::string(8, 0))),
      "dtype '<c8'");
  EXPECT_MENTIONS(
      error_of(file_of("{'descr': '<i2', 'fortran_order': False, 'shape': (1,), }", std::string(2, 0))),
      "dtype '<i2'");
  EXPECT_MENTIONS(
      error_of(file_of("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "abcd")),
      "records with fields");
  EXPECT_MENTIONS(error_of(file_of("{'descr': '<f4', 'shape': (1,), }", "abcd")), "lacks");
  EXPECT_MENTIONS(error_of(file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "abcd")),
                  "damaged");
  EXPECT_MENTIONS(
      error_of(file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8), }", "")),
      "too many elements");
}

}  // namespace
}  // namespace xhat::npy_test
