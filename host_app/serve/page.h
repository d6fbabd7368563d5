#pragma once

namespace warpfuse::host {

// GET /: a page that uses nothing but this server.
inline constexpr const char* kPage = R"page(<!doctype html>
<html lang="en"><meta charset="utf-8"><title>warpfuse</title>
<style>
body { font: 16px sans-serif; max-width: 46em; margin: 2em auto; padding: 0 1em; }
textarea { width: 100%; font: inherit; box-sizing: border-box; }
input[type=number] { width: 6em; }
#text { white-space: pre-wrap; border: 1px solid #999; padding: .7em; min-height: 6em; }
#figures { color: #555; }
</style>
<h1>warpfuse</h1>
<textarea id="prompt" rows="4">The river</textarea>
<p><label>tokens <input id="tokens" type="number" min="1" value="64"></label>
<label>temperature <input id="temperature" type="number" min="0" max="2" step="0.1" value="0.8"></label>
<label>seed <input id="seed" type="number" min="0" value="0"></label>
<label>API key <input id="key" type="password" placeholder="if asked for"></label>
<button id="go">Continue</button></p>
<div id="text"></div>
<p id="figures"></p>
<script>
"use strict";
const at = (id) => document.getElementById(id);
const headers = () => ({"Content-Type": "application/json",
  ...(at("key").value ? {Authorization: "Bearer " + at("key").value} : {})});
async function softmaxCalls() {
  const text = await (await fetch("/metrics", {headers: headers()})).text();
  const value = (name) => (text.match(new RegExp("^warpfuse_" + name + " (\\d+)$", "m")) || [])[1];
  return value("softmax_calls_by_plugin_total") + " of " + value("softmax_calls_total") +
    " softmax calls by the plugin";
}
at("go").onclick = async () => {
  at("go").disabled = true;
  at("figures").textContent = "";
  at("text").textContent = at("prompt").value;
  try {
    const start = performance.now();
    const response = await fetch("/v1/completions", {method: "POST", headers: headers(),
      body: JSON.stringify({prompt: at("prompt").value, max_tokens: +at("tokens").value,
        temperature: +at("temperature").value, seed: +at("seed").value, stream: true})});
    if (!response.ok) throw new Error((await response.json()).error.message);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let held = "", tokens = 0;
    for (let part; !(part = await reader.read()).done;) {
      const events = (held + part.value).split("\n\n");
      held = events.pop();
      for (const event of events) {
        if (event === "data: [DONE]") continue;
        const said = JSON.parse(event.slice(6));
        if (said.error) throw new Error(said.error.message);
        at("text").textContent += said.choices[0].text;
        ++tokens;
      }
    }
    const rate = tokens / (performance.now() - start) * 1000;
    at("figures").textContent = rate.toFixed(1) + " tokens/s; " + await softmaxCalls();
  } catch (error) {
    at("figures").textContent = "error: " + error.message;
  }
  at("go").disabled = false;
};
</script>
</html>
)page";

}  // namespace warpfuse::host
