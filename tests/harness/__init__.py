"""Real peers for tests: Hermes gateways, MCP clients, and the model they all talk to.

Everything here is reached through fixtures (`tests/harness/fixtures.py`, loaded by
`tests/conftest.py`), so a test names what it needs and nothing else::

    @pytest.mark.hermes                                  # venvs are built before the first test
    def test_a_bot_answers(hermes, llm, gateways):       # runs once per Hermes version
        llm.when("2\\+2", Say("4"))                       # last user message -> what the model says
        llm.when("ask (?P<to>\\w+)", Call("list_agents", {}), Say("{to}: {result}"))
        bot = gateways("bot", plugins={"hermes-bridge": PLUGIN_DIR}, config={...}, env={...})
        bot.wait_platform("hermes-bridge")               # "connected" unless another state is given
        llm.wait_for("2\\+2")                             # blocks until the model was asked that
        bot.kill(); bot.start()                          # the same home; bot.stop() sends SIGTERM

* `hermes` is a `venvs.Venv` of Hermes 0.19 and of 0.22 (`HERMES_VERSIONS=0.19` narrows it);
  `mcp_client` one of the official `mcp` client 1.x and of 2.x. Both live in
  `$HERMES_BRIDGE_TEST_CACHE` (default `~/.cache/hermes-bridge-tests`), are made on first use, and a
  test without them is skipped by name (with `REQUIRE=all`: fails).
* `llm` is an in-process `llm.ScriptedModel`; `python -m tests.harness.llm` runs one by itself.
* `gateways(name, ...)` starts a headless `gateway.Gateway` in a fresh home; several run at once.
  A start takes 3 s of CPU (0.19) or 8 (0.22), the first turn half as much: `made_gateways` is the
  same for a fixture of a module or session, and tests share what it gives.
  Their logs are printed when the test fails, and only their own processes are ended.
* The API is synchronous: an async test calls it through `anyio.to_thread.run_sync`.
"""
