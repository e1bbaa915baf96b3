import { createServices, type Services } from "../../functions/services.ts";
import { loadConfig } from "../../shared/platform/config/config.ts";
import type { Answer, Service } from "../support/service.ts";

/** The service, and helpers with which the requests are prepared. */
export interface EndpointContext {
  service: Service;
  /** Returns modules of the service on the tested storage, for preparations that the API does not offer. */
  services(): Services;
  /** Returns the administrator's token. */
  token(): string;
  /** Sends a request as the administrator, and returns the body of the response. Throws if the request fails. */
  call(method: string, path: string, body?: unknown): Promise<Answer["body"]>;
  /** Returns a number that was not used before. */
  nextNumber(): number;
  /** Returns a name that was not used before and starts with the text. */
  uniqueName(text: string): string;
  /** Returns a function that reads the state of a creation: `done` if the path exists. */
  stateIfExists(path: string): () => Promise<"done" | "undone">;
  /** Returns a function that reads the state of a removal: `done` if the path does not exist. */
  stateIfRemoved(path: string): () => Promise<"done" | "undone">;
}

/** Creates the context. Reads the service only when a preparation runs. */
export function createEndpointContext(service: Service, token: () => string): EndpointContext {
  let lastNumber = 0;
  let services: Services | undefined;
  const statusOf = async (path: string) => (await service.call("GET", path, { token: token() })).status;
  const nextNumber = () => ++lastNumber;
  return {
    service,
    services: () =>
      (services ??= createServices(
        loadConfig({ ...service.environment, AzureWebJobsStorage: service.azurite.connectionString() }),
      )),
    token,
    call: async (method, path, body) => requireSuccess(await service.call(method, path, { token: token(), body })).body,
    nextNumber,
    uniqueName: (text) => `${text} ${nextNumber()}`,
    stateIfExists: (path) => async () => ((await statusOf(path)) === 200 ? "done" : "undone"),
    stateIfRemoved: (path) => async () => ((await statusOf(path)) === 404 ? "done" : "undone"),
  };
}

/** Returns the response unchanged. Throws if it reports a failure. */
export function requireSuccess(answer: Answer): Answer {
  if (answer.status >= 300) throw new Error(`${answer.status}: ${answer.text}`);
  return answer;
}
