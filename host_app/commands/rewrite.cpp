#include <unistd.h>

#include <map>
#include <set>
#include <sstream>

#include "commands/commands.h"
#include "commands/inputs.h"
#include "runtime/files.h"
#include "runtime/folder_draft.h"
#include "runtime/held_signals.h"
#include "runtime/load/session.h"
#include "runtime/output.h"
#include "runtime/parse.h"

namespace warpfuse::host {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr Option kRewriteOptions[] = {
    {"in", "IN", "TorchScript file, or bundle folder"},
    {"out", "OUT", "file or folder to write; a bundle is written as a bundle"},
    {"report", "FORM", "table or json", "table"},
    {"require", "N", "exit with code 1 and write nothing if fewer calls were routed", "0"},
    {"input", "SIZES[:DTYPE]",
     "an argument of forward, in order: sizes as numbers or names (equal names mean equal sizes), "
     "and its dtype; this proves more",
     nullptr, true},
    {"device", "DEVICE", "replaces the device literals of the trace: cpu or cuda"},
    {"keep-nan", kSwitch, "leave masks that may hide a whole row to ATen, which gives NaN"},
    {"freeze", kSwitch, "make the parameters constants of the graphs, as torch.jit.freeze does"},
    {"dry-run", kSwitch, "report, and write nothing"},
    {"force", kSwitch, "replace OUT where it exists"},
};

// "B,T" or "B,T:int64".
RewriteArgument argument_of(const std::string& text) {
  const size_t colon = std::min(text.find(':'), text.size());
  RewriteArgument argument{.sizes = parse_sizes(text.substr(0, colon))};
  if (colon < text.size()) {
    argument.dtype = dtype_named(text.substr(colon + 1));
    if (!argument.dtype) {
      fail(ExitCode::usage, "--input: expected a dtype such as int64 after ':', got '{}'", text);
    }
  }
  return argument;
}

RewriteOptions read_options(const Arguments& arguments, const ModelPath& model) {
  RewriteOptions options;
  options.keep_nan = arguments.has("keep-nan");
  options.freeze = arguments.has("freeze");
  if (arguments.has("device")) {
    const std::string device = arguments.text("device");
    if (device != "cpu" && device != "cuda") {
      fail(ExitCode::usage, "--device: expected cpu or cuda, got '{}'", device);
    }
    options.device = c10::Device(device == "cuda" ? "cuda:0" : device);
  }
  if (model.language_model() != nullptr) {
    options.arguments = language_model_arguments();
  } else if (arguments.has("input")) {
    for (const std::string& text : arguments.texts("input")) {
      options.arguments["forward"].push_back(argument_of(text));
    }
  } else if (model.bundle) {
    options.arguments = module_arguments(*model.bundle);
  }
  return options;
}

void print_table(const RewriteReport& report) {
  print("{}\n", summary_of(report));
  if (report.softmaxes.empty()) {
    return;
  }
  size_t module_width = std::string_view("module").size(), form_width = module_width,
         mask_width = form_width;
  for (const RewrittenSoftmax& each : report.softmaxes) {
    module_width = std::max(module_width, each.method.size() + 1 + each.module.size());
    form_width = std::max(form_width, each.form.size());
    mask_width = std::max(mask_width, each.mask.size());
  }
  print("\n{:<{}}  {:<{}}  {:<31}  {:<{}}  {}\n", "module", module_width, "form", form_width,
        "operator", "mask", mask_width, "note");
  for (const RewrittenSoftmax& each : report.softmaxes) {
    const std::string module = each.module.empty() ? each.method : each.method + ":" + each.module;
    const std::string& after =
        each.operator_after.empty() ? each.operator_before : each.operator_after;
    std::string line = fmt::format("{:<{}}  {:<{}}  {:<31}  {:<{}}  {}", module, module_width,
                                   each.form, form_width, after, each.mask, mask_width, each.note);
    line.erase(line.find_last_not_of(' ') + 1);
    print("{}\n", line);
  }
}

void print_json(const RewriteReport& report) {
  ordered_json calls = ordered_json::array();
  for (const RewrittenSoftmax& each : report.softmaxes) {
    calls.push_back({{"method", each.method},
                     {"module", each.module},
                     {"source", each.source},
                     {"before", each.operator_before},
                     {"after", each.operator_after.empty() ? ordered_json()
                                                           : ordered_json(each.operator_after)},
                     {"form", each.form},
                     {"mask", each.mask},
                     {"note", each.note}});
  }
  const size_t chains = report.grid_sample_chains().size();
  const ordered_json whole{{"routed", report.routed()},
                           {"softmax_calls", report.softmaxes.size() - chains},
                           {"grid_sample_chains", chains},
                           {"sdpa_calls", report.sdpa_calls},
                           {"already_routed", report.already_routed},
                           {"retargeted_devices", report.retargeted_devices},
                           {"calls", calls}};
  print("{}\n", dump(whole, 2));
}

// NOLINTNEXTLINE(misc-no-recursion): it follows the nesting of the blocks.
void collect_operators(torch::jit::Block* block, std::set<std::string>& names) {
  for (const torch::jit::Node* node : block->nodes()) {
    if (!node->kind().is_aten() && !node->kind().is_prim()) {
      names.insert(node->kind().toQualString());
    }
    for (const torch::jit::Block* inner : node->blocks()) {
      collect_operators(const_cast<torch::jit::Block*>(inner), names);  // NOLINT(*-const-cast)
    }
  }
}

std::string model_bytes(const torch::jit::Module& module) {
  std::ostringstream stream;
  module.save(stream);
  return std::move(stream).str();
}

// That of the bundle, with what differs in its rewritten model.
ordered_json description_of(const Bundle& bundle, const torch::jit::Module& module,
                            const std::string& model) {
  std::set<std::string> operators;
  for (const torch::jit::Method& method : module.get_methods()) {
    collect_operators(method.graph()->block(), operators);
  }
  ordered_json description = ordered_json::parse(read_model_file(bundle.folder / "bundle.json"));
  std::istringstream stream(model);
  description["sha256"]["model.pt"] = sha256_of(stream);
  description["operators"] = operators;
  description["variant"] = "rewritten";
  description["schema_version"] = WARPFUSE_SCHEMA_VERSION;
  return description;
}

void write_bundle(const Bundle& bundle, const torch::jit::Module& module, const fs::path& out) {
  translating_errors(ExitCode::output, out.string(), [&] {
    const std::string model = model_bytes(module);
    const std::string description = dump(description_of(bundle, module, model), 2) + "\n";
    const std::map<fs::path, std::string_view> made{{"model.pt", model},
                                                    {"bundle.json", description}};
    const HeldSignals held;
    const FolderDraft draft(out);
    fs::create_directory(draft.folder());  // not as IN, which may be one that nobody may write to
    for (const fs::directory_entry& entry : fs::directory_iterator(bundle.folder)) {
      const fs::path name = entry.path().filename();
      if (!made.contains(name)) {
        fs::copy(entry.path(), draft.folder() / name, fs::copy_options::recursive);
      }
      HeldSignals::check(out);
    }
    for (const auto& [name, content] : made) {
      replace_file(draft.folder() / name, content);
    }
    draft.take_name();
  });
}

// Whether `path` is `folder`, or lies in it.
bool lies_in(const fs::path& path, const fs::path& folder) {
  return std::ranges::mismatch(folder, path).in1 == folder.end();
}

// OUT may be replaced, and IN stays as it is.
void check_out(const fs::path& in, const fs::path& out, bool force) {
  if (out.empty()) {
    fail(ExitCode::usage, "OUT: expected a path, got ''");
  }
  std::error_code error;
  const auto resolved = [](const fs::path& path) {
    const fs::path full = fs::weakly_canonical(path);
    return full.has_filename() ? full : full.parent_path();  // without a slash at the end
  };
  translating_errors(ExitCode::output, out.string(), [&] {
    const fs::path from = resolved(in), to = resolved(out);
    if (from == to || fs::equivalent(in, out, error)) {
      fail(ExitCode::usage, "{}: OUT is IN", out.string());
    }
    if (lies_in(from, to) || lies_in(to, from)) {
      fail(ExitCode::usage, "{}: OUT {} IN", out.string(),
           lies_in(from, to) ? "contains" : "lies in");
    }
  });
  if (!fs::exists(fs::symlink_status(out, error))) {  // a link to nothing is something
    return;
  }
  if (!force) {
    fail(ExitCode::usage, "{} exists (see --force)", out.string());
  }
  if (fs::is_directory(out, error) && !fs::is_empty(out, error) &&
      !fs::exists(out / "bundle.json", error)) {
    fail(ExitCode::usage, "{} is a folder and no bundle, which --force does not replace",
         out.string());
  }
  if (fs::is_directory(out, error) && access(out.c_str(), W_OK | X_OK) != 0) {
    fail(ExitCode::output, "{}: cannot be replaced: what is in it may not be removed",
         out.string());
  }
}

ExitCode run_rewrite(const Arguments& arguments) {
  const fs::path in = arguments.text("in");
  const bool is_dry = arguments.has("dry-run");
  const fs::path out = is_dry ? fs::path() : fs::path(arguments.text("out"));
  const std::string form = arguments.text("report");
  if (form != "table" && form != "json") {
    fail(ExitCode::usage, "--report: expected table or json, got '{}'", form);
  }
  const int64_t required = arguments.integer("require", 0);
  if (!is_dry) {
    check_out(in, out, arguments.has("force"));
  }
  const ModelPath model = find_model(in);
  const RewriteOptions options = read_options(arguments, model);
  const Session session =
      open_session(arguments.plugin_options(), "cpu", bundles_of({model}), {"warpfuse::softmax"});
  torch::jit::Module module = load_module(model, session.device);
  const RewriteReport report =
      translating_errors(ExitCode::model, in.string(), [&] { return rewrite(module, options); });
  if (form == "json") {
    print_json(report);
  } else {
    print_table(report);
  }
  if (report.routed() < required) {
    fail(ExitCode::check_failed, "{} of the {} required calls were routed; nothing was written",
         report.routed(), required);
  }
  if (!is_dry && model.bundle) {
    write_bundle(*model.bundle, module, out);
  } else if (!is_dry) {
    replace_file(out, model_bytes(module));
  }
  return ExitCode::ok;
}

}  // namespace

Command rewrite_command() {
  return {.name = "rewrite",
          .summary = "route a TorchScript file's softmax calls to the plugin",
          .help =
              "Routes the softmax calls and grid_sample chains of a TorchScript model to the\n"
              "plugin, and reports what happened to each. Anything that is not proved stays as "
              "it is.\n",
          .examples =
              "  warpfuse rewrite gpt2.pt gpt2-fused.pt --require 12\n"
              "  warpfuse rewrite bundles/wikitext-small/baseline-float32 rewritten\n"
              "  warpfuse rewrite t5.pt t5-fused.pt --input B,T --input B,U --report json\n",
          .positional_help = "IN OUT",
          .positionals = {"in", "out"},
          .options = {{kRewriteOptions}, {kPluginOptions}},
          .run = run_rewrite};
}

}  // namespace warpfuse::host
