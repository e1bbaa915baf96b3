import { expect, test, vi } from "vitest";
import { createLogger, withLogContext } from "../../functions/log.ts";
import { HOSTILE_NAMES, NOT_IN_A_LINE } from "../support/hostile-names.ts";

/** Creates the platform's log of one invocation. `lines` collects the written lines, each after its level. */
function createInvocationLog() {
  const lines: string[] = [];
  const write = (level: string) => (line: string) => void lines.push(`${level} ${line}`);
  return { lines, debug: write("debug"), info: write("info"), warn: write("warn"), error: write("error") } as never as {
    lines: string[];
  } & Console;
}

test("a line starts with the request id of its invocation, then its fields", async () => {
  const [one, other] = [createInvocationLog(), createInvocationLog()];
  const log = createLogger(() => "DEBUG");
  await Promise.all([
    withLogContext(one, "r-1", async () => {
      await Promise.resolve();
      log.warn("Late", { vault: "kv-a" });
    }),
    withLogContext(other, "r-2", async () => log.debug("Here")),
  ]);
  expect(one.lines).toEqual(['warn Late {"requestId":"r-1","vault":"kv-a"}']);
  expect(other.lines).toEqual(['debug Here {"requestId":"r-2"}']);
});

test("a line outside of an invocation goes to the output of the process", () => {
  const output = vi.spyOn(console, "info").mockImplementation(() => {});
  const log = createLogger(() => "INFO");
  log.info("Started");
  log.info("Started", { port: 7071 });
  expect(output.mock.calls).toEqual([["Started"], ['Started {"port":7071}']]);
  output.mockRestore();
});

// An event is a line that is written whatever the log level is. The third argument makes a line an event.
test("an event is written at every level", async () => {
  for (const level of ["DEBUG", "INFO", "WARNING", "ERROR"] as const) {
    const invocationLog = createInvocationLog();
    await withLogContext(invocationLog, "r", async () =>
      createLogger(() => level).info("A scan is over", { status: "x" }, "event"),
    );
    expect([level, invocationLog.lines]).toEqual([level, ['info A scan is over {"requestId":"r","status":"x"}']]);
  }
});

test.each([
  ["DEBUG", ["debug", "info", "warn", "error"]],
  ["INFO", ["info", "warn", "error"]],
  ["WARNING", ["warn", "error"]],
  ["ERROR", ["error"]],
] as const)("at %s only lines of that level and above are written", async (level, written) => {
  const invocationLog = createInvocationLog();
  const log = createLogger(() => level);
  await withLogContext(invocationLog, "r", async () => {
    log.debug("x");
    log.info("x");
    log.warn("x");
    log.error("x");
  });
  expect(invocationLog.lines.map((line) => line.split(" ")[0])).toEqual(written);
});

test.each(HOSTILE_NAMES)(
  "a name with %s stays on the line of its message, which other programs read as JSON",
  async (_, name) => {
    const invocationLog = createInvocationLog();
    await withLogContext(invocationLog, "r", async () =>
      createLogger(() => "INFO").info(`Vault ${name}`, { vault: name, [name]: 1 }),
    );
    const [line] = invocationLog.lines;
    expect(line).not.toMatch(NOT_IN_A_LINE);
    const fields = JSON.parse(line!.slice(line!.indexOf('{"requestId"')));
    expect(fields).toEqual({ requestId: "r", vault: name, [name]: 1 });
  },
);
