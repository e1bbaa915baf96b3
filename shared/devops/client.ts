import { setTimeout as sleep } from "node:timers/promises";
import { CALL_LIMITS, type CallLimits, createSender } from "../platform/azure/calls.ts";
import { asCloudFailure, type CallTarget, type CloudFailure, failure, retryAfter } from "../platform/azure/failure.ts";
import type { Identity } from "../platform/azure/identity.ts";
import type { Logger, Randomness } from "../platform/runtime.ts";
import { devopsFailure } from "./failures.ts";
import {
  type ConnectionData,
  devopsRoute,
  type Page,
  type Project,
  type Proxied,
  type ServiceConnection,
  type VariableGroup,
} from "./response-schemas.ts";

/**
 * The scope of access tokens for Azure DevOps, with the fixed ID of the resource Azure DevOps:
 * https://learn.microsoft.com/azure/devops/integrate/get-started/authentication/service-principal-managed-identity
 */
const SCOPE = "499b84ac-1321-427f-aa17-267ca6975798/.default";

/** The identity that DevOps returns, with status 200, for requests without a valid token. */
const ANONYMOUS_USER_ID = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";

const API_VERSION = "api-version=7.1";

/**
 * Matches temporary failures of the sign-in that a connection test makes: 408, 429 and 5xx, by name (`HttpStatusCode` of .NET)
 * or by number.
 */
const TEMPORARY_STATUS =
  /^(408|429|5\d\d|requestTimeout|tooManyRequests|internalServerError|badGateway|serviceUnavailable|gatewayTimeout)$/i;

/** Headers of each request. `Suppress` makes DevOps return status 401 instead of a redirect to the sign-in page. */
const HEADERS = { accept: "application/json", "x-tfs-fedauthredirect": "Suppress" };

export interface ListOptions {
  /** True to list only items that the identity can change. */
  manageable?: boolean;
  /** Called for entries that don't match the documentation of DevOps. Without it, such an entry fails the list. */
  unreadable?: ((entry: unknown, failure: CloudFailure) => void) | undefined;
  signal?: AbortSignal | undefined;
}

/** Thrown instead of sending a write whose time `notAfter` has passed: the read that it is based on is too old. */
export class ReadTooOld extends Error {
  override readonly name = "ReadTooOld";
}

/**
 * Client of one Azure DevOps organization. All methods throw `CloudFailure`, with the code `timedOut` if their signal is
 * aborted.
 */
export interface DevopsClient {
  /** Returns the service's identity in the organization. @throws {CloudFailure} unauthorized if it has none. */
  user(signal?: AbortSignal): Promise<{ id: string; name: string | undefined }>;
  projects(signal?: AbortSignal): AsyncGenerator<Project[]>;
  /** Lists the items that the identity can see. DevOps silently omits those for which it has no role. */
  variableGroups(projectId: string, options?: ListOptions): AsyncGenerator<VariableGroup[]>;
  connections(projectId: string, options?: ListOptions): AsyncGenerator<ServiceConnection[]>;
  /** Reads one item. Undefined if the item does not exist or the identity can't see it. */
  variableGroup(projectId: string, id: number): Promise<VariableGroup | undefined>;
  connection(projectId: string, id: string): Promise<ServiceConnection | undefined>;
  /**
   * Replaces the whole group. DevOps deletes variables that are missing, and keeps the value of a secret without one. The
   * request is sent once and not retried.
   *
   * @param notAfter - Latest time to send, Unix milliseconds.
   * @throws {ReadTooOld} if that time has passed; nothing was sent.
   */
  putVariableGroup(group: VariableGroup, notAfter: number): Promise<VariableGroup>;
  /** Replaces the whole connection, with the rules of `putVariableGroup`. */
  putConnection(connection: ServiceConnection, notAfter: number): Promise<ServiceConnection>;
  /**
   * Converts a connection to another scheme of authentication: `WorkloadIdentityFederation`, or back to `ServicePrincipal`. With the
   * rules of `putVariableGroup`.
   * https://learn.microsoft.com/azure/devops/pipelines/release/configure-workload-identity#convert-multiple-azure-resource-manager-service-connections-with-a-script
   */
  convertConnection(connection: ServiceConnection, notAfter: number): Promise<ServiceConnection>;
  /**
   * Makes DevOps sign in with the connection. Returns true if that succeeds.
   *
   * @throws {CloudFailure} unreachable if the sign-in service is busy or fails, which says nothing about the connection.
   */
  testConnection(projectId: string, connection: ServiceConnection): Promise<boolean>;
}

export interface DevopsClientOptions {
  /** URL of the organization without a trailing slash: see `organizationAddress`. */
  address: string;
  identity: Identity;
  log: Logger;
  randomness: Randomness;
  limits?: Partial<CallLimits> | undefined;
}

interface SendOptions {
  method?: "GET" | "POST" | "PUT";
  body?: object;
  notAfter?: number;
}

/**
 * Creates a client of Azure DevOps Services with the service's own identity. A client belongs to one organization and respects
 * its rate limits.
 */
export function createDevopsClient(options: DevopsClientOptions): DevopsClient {
  const { address, identity, log, randomness } = options;
  const { origin, pathname } = new URL(address);
  const base = pathname.replace(/\/+$/, "");
  const limits = { ...CALL_LIMITS, ...options.limits };
  /**
   * Time until which requests wait, Unix milliseconds. DevOps returns Retry-After also with status 200, and blocks
   * clients that ignore it.
   */
  let notBefore = 0;

  async function waitForRateLimit(target: CallTarget, signal: AbortSignal | undefined): Promise<void> {
    const wait = notBefore - Date.now();
    if (wait <= 0) return;
    if (wait > limits.totalWaitMs) {
      throw failure("throttled", target, "Azure DevOps requests a delay", {
        remedy: "No action needed: the service retries later.",
        retryAfterSeconds: Math.ceil(wait / 1000),
      });
    }
    await sleep(wait, undefined, signal ? { signal } : {}).catch((reason) => {
      throw asCloudFailure(reason, target);
    });
  }

  /** Returns the function that sends the requests of one call: the pages of a list, or a single request. */
  async function createCall(
    signal?: AbortSignal,
    callLimits: Partial<CallLimits> = {},
    unreadable?: ListOptions["unreadable"],
  ) {
    const route = (path: string) =>
      path.startsWith(`${base}/`) ? devopsRoute(path.slice(base.length), address) : undefined;
    const send = await createSender({
      origin,
      scope: SCOPE,
      identity,
      route,
      resource: address,
      signal,
      unreadable,
      failureOf: devopsFailure,
      log,
      randomness,
      limits: { ...limits, ...callLimits },
    });
    return async (path: string, { method = "GET", body, notAfter }: SendOptions = {}) => {
      const url = `${address}${path}`;
      await waitForRateLimit(route(new URL(url).pathname)!.target, signal);
      if (notAfter !== undefined) {
        // The token is acquired before the time is checked, because acquiring it takes time.
        await (await identity.credential()).getToken(SCOPE);
        if (Date.now() > notAfter) throw new ReadTooOld();
      }
      // Token of the next page, if the response has one.
      let next: string | undefined;
      /** `send` calls it with the headers of a successful response. */
      const answered = (header: (name: string) => string | undefined) => {
        next = header("x-ms-continuationtoken");
        const seconds = retryAfter({ status: 200, body: "", header });
        if (seconds !== undefined) notBefore = Math.max(notBefore, Date.now() + seconds * 1000);
      };
      // Returns the unparsed body, not the result of a schema, because a write must send back all members.
      return { json: await send({ method, url, body, headers: HEADERS, answered }), next };
    };
  }

  async function requestOne<T>(path: string, options?: SendOptions, callLimits?: Partial<CallLimits>): Promise<T> {
    return (await (await createCall(undefined, callLimits))(path, options)).json as T;
  }

  async function* pages<T>(path: string, query: string, { unreadable, signal }: ListOptions = {}) {
    const send = await createCall(signal, {}, unreadable);
    let token: string | undefined;
    do {
      const continuation = token === undefined ? "" : `&continuationToken=${encodeURIComponent(token)}`;
      const { json, next } = await send(`${path}?${API_VERSION}${query}${continuation}`);
      yield (json as Page<T>).value;
      token = next;
    } while (token);
  }

  const groups = "_apis/distributedtask/variablegroups";
  const endpoints = "_apis/serviceendpoint/endpoints";
  const filter = (manageable: boolean | undefined) => (manageable ? "&actionFilter=manage" : "");
  /** Limits without retries: the state that a retry is based on may have changed. */
  const withoutRetries = { throttledTries: 1, concurrencyTries: 1, unreachableTries: 1 };

  return {
    async user(signal) {
      // This path has only preview versions.
      const { json } = await (await createCall(signal))("/_apis/connectionData?api-version=7.1-preview.1");
      const { authenticatedUser: user } = json as ConnectionData;
      if (user.id.toLowerCase() === ANONYMOUS_USER_ID) {
        throw devopsFailure(
          { status: 401, body: "", header: () => undefined },
          { operation: "sign in to Azure DevOps", resource: address },
        )!;
      }
      return { id: user.id, name: user.providerDisplayName ?? undefined };
    },
    projects: (signal) => pages("/_apis/projects", "&$top=100", { signal }),
    variableGroups: (projectId, { manageable, ...listOptions } = {}) =>
      pages(`/${encodeURIComponent(projectId)}/${groups}`, `&$top=100${filter(manageable)}`, listOptions),
    connections: (projectId, { manageable, ...listOptions } = {}) =>
      pages(
        `/${encodeURIComponent(projectId)}/${endpoints}`,
        // Also connections that DevOps reports as failed: they can contain a secret too.
        `&includeFailed=true&includeDetails=true${filter(manageable)}`,
        listOptions,
      ),
    variableGroup: async (projectId, id) =>
      (await requestOne<VariableGroup | null>(`/${encodeURIComponent(projectId)}/${groups}/${id}?${API_VERSION}`)) ??
      undefined,
    connection: async (projectId, id) =>
      (await requestOne<ServiceConnection | null>(
        `/${encodeURIComponent(projectId)}/${endpoints}/${encodeURIComponent(id)}?${API_VERSION}`,
      )) ?? undefined,
    putVariableGroup: (group, notAfter) =>
      requestOne(`/${groups}/${group.id}?${API_VERSION}`, { method: "PUT", body: group, notAfter }, withoutRetries),
    putConnection: (connection, notAfter) =>
      requestOne(
        `/${endpoints}/${connection.id}?${API_VERSION}`,
        { method: "PUT", body: connection, notAfter },
        withoutRetries,
      ),

    convertConnection: (connection, notAfter) =>
      requestOne(
        `/${endpoints}/${connection.id}?operation=ConvertAuthenticationScheme&${API_VERSION}`,
        { method: "PUT", body: connection, notAfter },
        withoutRetries,
      ),

    async testConnection(projectId, connection) {
      const path = `/${encodeURIComponent(projectId)}/_apis/serviceendpoint/endpointproxy?endpointId=${connection.id}&api-version=7.2-preview.1`;
      const body = {
        dataSourceDetails: {
          dataSourceName: "TestConnection",
          dataSourceUrl: "",
          headers: null,
          resourceUrl: "",
          requestContent: null,
          requestVerb: null,
          parameters: null,
          resultSelector: "",
          initialContextTemplate: "",
        },
        resultTransformationDetails: { callbackContextTemplate: "", callbackRequiredTemplate: "", resultTemplate: "" },
        serviceEndpointDetails: connection,
      };
      const { statusCode } = await requestOne<Proxied>(path, { method: "POST", body });
      if (TEMPORARY_STATUS.test(statusCode)) {
        const target = { operation: "test a service connection", resource: `service connection ${connection.id}` };
        throw failure("unreachable", target, "the sign-in service gave no clear answer", {
          remedy: "No action needed: the service retries later.",
          cloudCode: statusCode,
        });
      }
      return statusCode.toLowerCase() === "ok";
    },
  };
}
