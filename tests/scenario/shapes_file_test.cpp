// Shapes out of files: lists, headers of safetensors, and everything that can be wrong with them.
#include "sim/scenario/model_shapes/shapes_file.h"

#include "sim/base/limits.h"
#include "tests/scenario/documents.h"

namespace gradledger::testing {
namespace {

// A file of safetensors: a header of this text, and so many bytes of data.
std::string stored(const std::string& header, std::size_t data = 0) {
  std::string out;
  for (std::size_t i = 0, length = header.size(); i < 8; ++i, length >>= 8) out += static_cast<char>(length & 255);
  return out + header + std::string(data, '\0');
}

std::string tensor(const std::string& dtype, const std::string& shape, std::uint64_t begin, std::uint64_t end) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

class ShapesFile : public ::testing::Test {
 protected:
  Result<std::vector<TensorShape>> shapes(const std::string& name, const std::string& text) {
    folder_.write(name, text);
    return read_shapes(folder_.path() / name);
  }
  // The message, with the folder left out of it.
  std::string error(const std::string& name, const std::string& text) {
    const auto read = shapes(name, text);
    if (read) return "was read";
    std::string out = read.error().text();
    const std::string folder = folder_.path().string() + "/";
    for (std::size_t at = out.find(folder); at != out.npos; at = out.find(folder)) out.erase(at, folder.size());
    return out;
  }

  TemporaryFolder folder_;
};

using shapes_file = ShapesFile;

TEST_F(shapes_file, of_a_list_has_the_product_of_the_sizes_in_the_order_of_the_lines) {
  const auto read = shapes("model.txt", "# gpt\r\nwte.weight 50257 768  # tied\r\n\n\tb 7\nlarge 3000000000 2");
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(*read, (std::vector<TensorShape>{{"wte.weight", 38597376, 50257}, {"b", 7}, {"large", 6000000000, 3000000000}})) << "what can be held is another question";
}

TEST_F(shapes_file, of_a_list_that_is_none_is_refused_at_its_line) {
  const std::string expected = " for a size; expected a name and whole numbers, as in: embed.weight 50257 768";
  EXPECT_EQ(error("m", "a 3\nb 4x5\n"), "m:2: has \"4x5\"" + expected);
  EXPECT_EQ(error("m", "a -3\n"), "m:1: has \"-3\"" + expected);
  EXPECT_EQ(error("m", "a 99999999999999999999\n"), "m:1: has \"99999999999999999999\"" + expected);
  EXPECT_EQ(error("m", "a\n"), "m:1: has a name and no size; expected the number of elements behind it, as in: embed.weight 50257 768");
  EXPECT_EQ(error("m", "a 1125899906842624 2\n"), "m:1: has more elements than any model; expected sizes whose product is at most 2^50");
  EXPECT_EQ(error("m", "a 1125899906842624\nb 1\n"), "m: has more elements than any model; expected at most 2^50");
  EXPECT_EQ(error("m", "# nothing\n"), "m: has no tensor; expected at least one");
  EXPECT_EQ(error("m", "a 3\na 3\n"), "m: names two tensors \"a\"; expected each name once");
  EXPECT_EQ(error("m", "a 3\nb 4 0\n"), "m: has tensor \"b\" without elements; expected at least one in each");
  EXPECT_EQ(error("m", "a\x01 3\n"), "m: names a tensor \"a\\u0001\", with a control character; expected a name that can be printed");
  EXPECT_EQ(error("m", std::string("a 3\n\0", 5)), "m: is no text; expected a list of shapes, or a file whose name ends in .safetensors");
  EXPECT_EQ(error("m", std::string(limits::name_length_max + 1, 'a') + " 3\n"), "m: has a name of 257 characters, \"" + std::string(60, 'a') + "\"; expected from 1 to 256");
  std::string many;
  for (std::uint32_t i = 0; i <= limits::parameters_max; ++i) many += "p" + std::to_string(i) + " 1\n";
  EXPECT_EQ(error("m", many), "m: has more than 4096 tensors; expected at most so many");
  EXPECT_NE(read_shapes(folder_.path() / "none").error().message.find("cannot be read"), std::string::npos);
  EXPECT_NE(read_shapes(folder_.path()).error().message.find("is a directory"), std::string::npos);
}

TEST_F(shapes_file, of_safetensors_gives_tensors_as_their_data_lies_and_reads_no_data) {
  const std::string header = R"({"__metadata__":{"format":"pt"},"z":)" + tensor("BF16", "[2,3]", 0, 12) + R"(,"a":)" + tensor("F32", "[]", 12, 16) + R"(,"mask":)" +
                             tensor("BOOL", "[4]", 16, 20) + R"(,"m.0.w":)" + tensor("F16", "[1024,1024,4096]", 20, 8589934612) + "}   ";
  const auto read = shapes("m.safetensors", stored(header));
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(*read, (std::vector<TensorShape>{{"z", 6, 2}, {"a", 1}, {"m.0.w", 4294967296, 1024}}));
}

TEST_F(shapes_file, of_safetensors_that_is_none_is_refused_before_memory_is_taken) {
  const auto refused = [&](const std::string& text) { return error("m.safetensors", text); };
  EXPECT_EQ(refused("1234567"), "m.safetensors: has 7 bytes; expected a file of safetensors, which begins with the length of its header");
  const std::string long_header = " bytes; expected no more than the file has, and at most 100000000";
  EXPECT_EQ(refused(stored("{}").substr(0, 9)), "m.safetensors: says that its header has 2" + long_header);
  EXPECT_EQ(refused(std::string(8, '\xff') + "{}"), "m.safetensors: says that its header has 18446744073709551615" + long_header);
  EXPECT_NE(refused(stored("{\"a\":")).find("m.safetensors: has a header that cannot be read: "), std::string::npos);
  EXPECT_EQ(refused(stored("[]")), "m.safetensors: has a header that is no object; expected one of tensors by name");
  EXPECT_EQ(refused(stored("{}")), "m.safetensors: has no tensor; expected at least one");
  const auto of = [](const std::string& entry) { return stored(R"({"a/b":)" + entry + "}"); };
  const std::string what = "is no tensor; expected an object with dtype, shape and data_offsets";
  EXPECT_EQ(refused(of("3")), "m.safetensors, /a~1b: " + what);
  EXPECT_EQ(refused(of(R"({"dtype":"F32","shape":[1]})")), "m.safetensors, /a~1b: " + what);
  EXPECT_EQ(refused(of(tensor("F32", "[1]", 8, 4))), "m.safetensors, /a~1b: " + what);
  EXPECT_EQ(refused(of(tensor("F31", "[1]", 0, 4))),
            "m.safetensors, /a~1b/dtype: is \"F31\", which is not known here; expected one of F32, BF16, F16, F64 and others of safetensors");
  EXPECT_EQ(refused(of(tensor("F32", "[1.5]", 0, 4))), "m.safetensors, /a~1b/shape: has a size of 1.5; expected whole numbers whose product is at most 2^50");
  EXPECT_EQ(refused(of(tensor("F32", "[4294967296,4294967296]", 0, 4))),
            "m.safetensors, /a~1b/shape: has a size of 4294967296; expected whole numbers whose product is at most 2^50");
  EXPECT_EQ(refused(of(tensor("F32", "[2]", 0, 4))), "m.safetensors, /a~1b: has 2 elements of F32 in 4 bytes; expected 8");
  EXPECT_EQ(refused(of(tensor("F32", "[0]", 0, 0))), "m.safetensors: has tensor \"a/b\" without elements; expected at least one in each");
  EXPECT_NE(refused(stored(R"({"a":)" + tensor("F32", "[1]", 0, 4) + R"(,"a":)" + tensor("F32", "[1]", 4, 8) + "}")).find("/a"), std::string::npos) << "twice";
}

TEST_F(shapes_file, of_an_index_is_read_out_of_the_files_beside_it) {
  const std::string index = R"({"metadata":{"total_size":28},"weight_map":{"b":"2.safetensors","a":"1.safetensors","c":"1.safetensors"}})", name = "m.safetensors.index.json";
  folder_.write("1.safetensors", stored(R"({"c":)" + tensor("F32", "[2]", 0, 8) + R"(,"a":)" + tensor("F32", "[3]", 8, 20) + "}"));
  EXPECT_NE(error(name, index).find("2.safetensors: cannot be read"), std::string::npos);
  folder_.write("2.safetensors", stored(R"({"b":)" + tensor("F32", "[2]", 0, 8) + "}"));
  const auto read = shapes(name, index);
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(*read, (std::vector<TensorShape>{{"c", 2}, {"a", 3}, {"b", 2}}));
  EXPECT_EQ(error(name, R"({"weight_map":{"d":"2.safetensors"}})"), "m.safetensors.index.json: names \"d\" in 2.safetensors, which has no such tensor; expected one that it has");
  EXPECT_EQ(error(name, "{}"), "m.safetensors.index.json: has no weight_map; expected an index of files of safetensors");
  EXPECT_EQ(error(name, R"({"weight_map":{"a":3}})"), "m.safetensors.index.json, /weight_map/a: is 3; expected the name of a file beside the index");
  EXPECT_EQ(error(name, R"({"weight_map":{"a":"../1.safetensors"}})"),
            "m.safetensors.index.json, /weight_map/a: is \"../1.safetensors\"; expected the name of a file beside the index");
}

TEST_F(shapes_file, of_a_scenario_is_looked_for_beside_it) {
  const json document = parameters_of_a_file();
  folder_.write("model.shapes", shapes_text);
  const auto scenario = read(document, folder_.path());
  ASSERT_TRUE(scenario) << scenario.error().text();
  ASSERT_EQ(scenario->parameters.size(), 2u);
  EXPECT_EQ(scenario->parameters[0].numel, 6u);
  const json written = to_json(*scenario);
  EXPECT_EQ(written["parameters"], json::parse(R"([{"name": "w", "numel": 6}, {"name": "v", "numel": 3}])")) << "it needs the file no more";
  folder_.write("model.shapes", "w 2\nw 3\n");
  const auto refused = read(document, folder_.path());
  EXPECT_EQ(error_of(refused).where, "/parameters/file");
  EXPECT_NE(error_of(refused).message.find("model.shapes: names two tensors \"w\"; expected each name once"), std::string::npos);
}

TEST_F(shapes_file, of_more_than_can_be_held_is_refused_with_the_limit) {
  std::string one = "w " + std::to_string(limits::parameter_numel_max + 1) + "\n", all;
  for (std::uint64_t i = 0; i <= limits::model_numel_max / limits::parameter_numel_max; ++i)
    all += "p" + std::to_string(i) + " " + std::to_string(limits::parameter_numel_max) + "\n";
  for (const auto& [text, limit] : {std::pair{one, limits::parameter_numel_max}, std::pair{all, limits::model_numel_max}}) {
    folder_.write("model.shapes", text);
    const InputError error = error_of(read(parameters_of_a_file(), folder_.path()));
    EXPECT_EQ(error.where, "/parameters/file");
    EXPECT_NE(error.message.find("elements; expected at most " + std::to_string(limit)), std::string::npos) << error.message;
  }
}

}  // namespace
}  // namespace gradledger::testing
