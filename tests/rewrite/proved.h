#pragma once

#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <vector>

#include "../rewrite/facts.h"

/// What the rewriter proves of a module's method forward.
struct Proved {
  std::shared_ptr<torch::jit::Graph> graph;
  warpfuse::rewriting::Writes writes;
  warpfuse::rewriting::Attributes attributes;
  warpfuse::rewriting::Facts facts;

  Proved(const torch::jit::Module& module, const std::vector<warpfuse::RewriteArgument>& arguments)
      : graph(module.get_method("forward").graph()->copy()),
        writes(graph),
        attributes(module),
        facts(attributes, *graph, writes, arguments) {}

  const warpfuse::rewriting::Fact& result() const { return facts.of(graph->outputs().at(0)); }
};
