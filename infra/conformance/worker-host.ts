import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createRequire } from "node:module";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";

// A host for Microsoft's Node.js worker, which talks gRPC with it: loads an app and invokes its functions. The messages are
// those of https://github.com/Azure/azure-functions-language-worker-protobuf/blob/dev/src/proto/FunctionRpc.proto

/** Time limit of a message's answer. */
const ANSWER_MS = 120_000;
/** Maximum size of a message in both directions. */
const MAX_MESSAGE_BYTES = 128 * 1024 * 1024;
/** Folder of the protocol's definition in a checkout of the worker. */
const PROTO = "azure-functions-language-worker-protobuf/src/proto";

// biome-ignore lint/suspicious/noExplicitAny: messages of the protocol, of which the callers know the members
export type Message = any;

/** A function that the worker loaded. */
export interface LoadedFunction {
  name: string;
  id: string;
  /** The binding of the trigger, for example `{type: "httpTrigger", route, methods}`. */
  trigger: { name: string; type: string; route?: string; methods?: string[] };
  /** The error of the load, undefined if it succeeded. */
  error: string | undefined;
}

/** A running worker that has loaded an app. */
export class WorkerHost {
  readonly functions: LoadedFunction[] = [];
  readonly #child: ChildProcess;
  readonly #server: { forceShutdown(): void };
  readonly #send: (message: Message) => void;
  /** Receivers of answers by the ID of the request. */
  readonly #waiting = new Map<string, (message: Message) => void>();
  /** Returns the last lines of the worker's output. */
  readonly #output: () => string;

  private constructor(child: ChildProcess, server: { forceShutdown(): void }, stream: Message, output: () => string) {
    this.#child = child;
    this.#output = output;
    this.#server = server;
    this.#send = (message) => stream.write(message);
    stream.on("data", (message: Message) => this.#waiting.get(message.requestId)?.(message));
  }

  /**
   * Starts the worker and loads the app.
   *
   * @param folder - A built checkout of the worker, with its node_modules
   * @param node - The Node.js program that runs the worker
   */
  static async start(
    folder: string,
    node: string,
    app: string,
    environment: Record<string, string>,
  ): Promise<WorkerHost> {
    const require = createRequire(path.join(folder, "package.json"));
    const grpc = require("@grpc/grpc-js");
    const definition = require("@grpc/proto-loader").loadSync("FunctionRpc.proto", {
      includeDirs: [path.join(folder, PROTO)],
      longs: Number,
    });
    const { FunctionRpc } = grpc.loadPackageDefinition(definition).AzureFunctionsRpcMessages;
    const limits = {
      "grpc.max_receive_message_length": MAX_MESSAGE_BYTES,
      "grpc.max_send_message_length": MAX_MESSAGE_BYTES,
    };
    const server = new grpc.Server(limits);
    const connected = new Promise<Message>((resolve) => {
      server.addService(FunctionRpc.service, {
        EventStream: (stream: Message) => stream.once("data", () => resolve(stream)),
      });
    });
    const port = await new Promise<number>((resolve, reject) =>
      server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (error: Error | null, bound: number) =>
        error ? reject(error) : resolve(bound),
      ),
    );
    // Deprecated since grpc-js 1.10, and required before.
    server.start();
    const options = {
      uri: `http://127.0.0.1:${port}`,
      "worker-id": randomUUID(),
      "request-id": randomUUID(),
      "grpc-max-message-length": MAX_MESSAGE_BYTES,
    };
    const args = Object.entries(options).map(([name, value]) => `--functions-${name}=${value}`);
    const child = spawn(node, [path.join(folder, "dist/src/nodejsWorker.js"), ...args], {
      env: { PATH: process.env.PATH, HOME: process.env.HOME, ...environment },
      stdio: ["ignore", "pipe", "pipe"],
    });
    process.once("exit", () => child.kill("SIGKILL"));
    let output = "";
    for (const one of [child.stdout, child.stderr]) one.on("data", (data) => (output = (output + data).slice(-4_000)));
    const ended = once(child, "close").then(([code]) => {
      throw new Error(`The worker ended with ${code}: ${output}`);
    });
    const stream = await Promise.race([connected, ended]);
    // After `stop`, the end is expected.
    ended.catch(() => undefined);
    const host = new WorkerHost(child, server, stream, () => output);
    await host.#load(app);
    return host;
  }

  /** Sends the messages with which a Functions host starts: initialize, list the functions, load each. */
  async #load(app: string): Promise<void> {
    const init = { hostVersion: "4.1044.0", workerDirectory: app, functionAppDirectory: app, capabilities: {} };
    await this.#ask({ workerInitRequest: init });
    const { functionMetadataResponse } = await this.#ask({ functionsMetadataRequest: { functionAppDirectory: app } });
    for (const metadata of functionMetadataResponse.functionMetadataResults) {
      const { name, functionId: id, rawBindings } = metadata;
      const bindings: LoadedFunction["trigger"][] = rawBindings.map((text: string) => JSON.parse(text));
      const loaded = await this.#ask({ functionLoadRequest: { functionId: id, metadata } });
      const { result } = loaded.functionLoadResponse;
      this.functions.push({
        name,
        id,
        trigger: bindings.find(({ type }) => /trigger$/i.test(type))!,
        error: isSuccess(result) ? undefined : (result?.exception?.message ?? "failed"),
      });
    }
  }

  /**
   * Invokes a function.
   * @param data - The input of its trigger.
   * @returns The result: the return value, or the error
   */
  async invoke({ id, trigger }: LoadedFunction, data: Message): Promise<{ value?: Message; error?: string }> {
    const invocation = { invocationId: randomUUID(), functionId: id, inputData: [{ name: trigger.name, data }] };
    const { invocationResponse } = await this.#ask({ invocationRequest: { ...invocation, triggerMetadata: {} } });
    const { result, returnValue } = invocationResponse;
    return isSuccess(result) ? { value: returnValue } : { error: result?.exception?.message ?? "failed" };
  }

  /**
   * Sends a message, and returns the one that answers it.
   * @throws {Error} after the time limit, with the worker's output
   */
  async #ask(content: Message): Promise<Message> {
    const requestId = randomUUID();
    const answer = new Promise<Message>((resolve) => this.#waiting.set(requestId, resolve));
    this.#send({ requestId, ...content });
    const late = delay(ANSWER_MS, undefined, { ref: false }).then(() => {
      throw new Error(`The worker did not answer ${Object.keys(content)[0]}: ${this.#output()}`);
    });
    try {
      return await Promise.race([answer, late]);
    } finally {
      this.#waiting.delete(requestId);
    }
  }

  stop(): void {
    this.#child.kill("SIGKILL");
    this.#server.forceShutdown();
  }
}

/** `Success` is 1. The loader omits members with their default value, or gives the enum's number. */
const isSuccess = (result: Message): boolean => result?.status === 1 || result?.status === "Success";
