"""Times public implementations of the operators beside the plugin, in one run and in one way."""
