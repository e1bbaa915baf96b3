import { spawn } from "node:child_process";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { setTimeout as delay } from "node:timers/promises";

/** Time limit until a server is ready. Keycloak needs 20 to 60 seconds on two cores. */
const READY_MS = 300_000;
/** Time limit for the end after SIGTERM. */
const STOP_MS = 15_000;

/** Returns a port of 127.0.0.1 that no server uses. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

/**
 * Starts a server and waits until it is ready.
 *
 * @param isReady - May throw as long as the server is not ready.
 * @returns A function that ends the server
 * @throws {Error} if the server ends or is not ready in time, with the last lines of its output
 */
export async function startServer(
  command: readonly [string, ...string[]],
  environment: Record<string, string>,
  isReady: () => Promise<unknown>,
): Promise<() => Promise<void>> {
  const [program, ...args] = command;
  const child = spawn(program, args, { env: { ...process.env, ...environment }, stdio: ["ignore", "pipe", "pipe"] });
  const kill = () => child.kill("SIGKILL");
  process.once("exit", kill);
  let output = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (data) => (output = (output + data).slice(-4_000)));
  const ended = new Promise<string>((resolve) => {
    child.once("error", ({ message }) => resolve(message));
    child.once("exit", (code, signal) => resolve(`it ended with ${signal ?? code}`));
  });
  /** Ends the server with SIGTERM, and with SIGKILL if it does not end in time. */
  const stop = async () => {
    child.kill("SIGTERM");
    await Promise.race([ended, delay(STOP_MS, undefined, { ref: false })]);
    kill();
    process.removeListener("exit", kill);
  };
  const deadline = performance.now() + READY_MS;
  for (;;) {
    const answered = await isReady().then(
      () => true,
      () => false,
    );
    if (answered) return stop;
    // Waits 200 ms, or less if the server ends. An empty reason means: ask again.
    const reason = await Promise.race([
      ended,
      delay(200, performance.now() > deadline ? "it is not ready in time" : ""),
    ]);
    if (reason === "") continue;
    await stop();
    throw new Error(`${program} does not run: ${reason}\n${output}`);
  }
}
