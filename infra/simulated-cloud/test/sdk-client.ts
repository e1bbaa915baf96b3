import { type ChildProcess, fork } from "node:child_process";
import type { Cloud } from "../cloud.ts";
import type { Actions } from "./sdk-child.ts";

/** The error of an SDK client, as the child process reports it. */
export type SdkError = Error & {
  code?: string;
  statusCode?: number;
  /** Body of the error response. Undefined for errors of lists. */
  details?: { error?: { code?: string; message?: string; innerError?: { code?: string } } };
  headers?: Record<string, string>;
};

/**
 * Runs Azure's SDK clients in a child process (`sdk-child.ts`). The process gets only the environment variables of the cloud,
 * so it finds the cloud in the same way as the service does.
 */
export class SdkClient {
  readonly #child: ChildProcess;
  /** Calls without a response yet, by ID. ID 0 is the start of the process. */
  readonly #waiting = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
  #lastId = 0;

  private constructor(child: ChildProcess) {
    this.#child = child;
    child.on("message", ({ id, result, error }: { id: number; result?: unknown; error?: object }) => {
      const waiting = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error === undefined) waiting?.resolve(result);
      else waiting?.reject(Object.assign(new Error(), error));
    });
  }

  static async start(cloud: Cloud): Promise<SdkClient> {
    const child = fork(new URL("./sdk-child.ts", import.meta.url), {
      env: { PATH: process.env.PATH, ...cloud.environment },
      execArgv: [],
      serialization: "advanced",
    });
    const client = new SdkClient(child);
    await new Promise((resolve, reject) => {
      client.#waiting.set(0, { resolve, reject });
      child.once("exit", (code) => reject(new Error(`The client process ended with ${code}`)));
    });
    return client;
  }

  /** Runs an action in the child process. Resolves with its result. */
  call<A extends keyof Actions>(action: A, ...parameters: Parameters<Actions[A]>): ReturnType<Actions[A]> {
    const id = ++this.#lastId;
    const answer = new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
    this.#child.send({ id, action, parameters });
    return answer as ReturnType<Actions[A]>;
  }

  /** Runs an action that must fail. Resolves with its error. */
  async failure<A extends keyof Actions>(action: A, ...parameters: Parameters<Actions[A]>): Promise<SdkError> {
    try {
      await this.call(action, ...parameters);
    } catch (error) {
      return error as SdkError;
    }
    throw new Error(`${action} succeeded`);
  }

  async stop(): Promise<void> {
    const exited = new Promise((resolve) => this.#child.once("exit", resolve));
    this.#child.kill();
    await exited;
  }
}
