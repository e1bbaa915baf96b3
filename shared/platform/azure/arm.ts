import type * as z from "zod";
import { systemRandomness } from "../runtime.ts";
import {
  CALL_LIMITS,
  type CallLimits,
  createSender,
  page,
  type Route,
  type SentRequest,
  undocumented,
} from "./calls.ts";
import type { CallTarget, CloudFailure } from "./failure.ts";
import type { CloudServices } from "./key-vault.ts";

/** One call to Azure Resource Manager, or the first call of one list. */
export interface ArmCall {
  method?: SentRequest["method"];
  /** The path after the endpoint, with encoded segments. See `resourcePath`. */
  path: string;
  apiVersion: string;
  query?: Readonly<Record<string, string>>;
  body?: object;
  target: CallTarget;
  /**
   * Limits retries. Undefined: retried as `CALL_LIMITS` says. `afterRefusal`: retried only after a response that says that
   * nothing was done. `once`: not retried, because the body can be outdated by then.
   */
  repeat?: "afterRefusal" | "once";
  signal?: AbortSignal | undefined;
}

/** A complete list: its entries, and a failure for each entry that does not match the service's documentation. */
export interface ListResult<T> {
  entries: T[];
  unreadable: CloudFailure[];
}

/**
 * Client of Azure Resource Manager (ARM) for any path, with the token, retries and checks of calls.ts. The methods throw
 * `CloudFailure`, with the code `timedOut` when their signal is aborted. https://learn.microsoft.com/rest/api/azure/
 */
export interface Arm {
  /** Returns the response body, which must match the schema `answer`. Success is 200. */
  call<T>(call: ArmCall, answer: z.ZodType<T>): Promise<T>;
  /**
   * Starts an operation. Success is 200, 202 or 204. An operation can continue after the response: the caller must check its
   * effect.
   */
  execute(call: ArmCall): Promise<void>;
  /**
   * Returns the entries of a list, page by page, without checking them. The list is complete only if the iteration ends
   * normally.
   */
  pages(call: ArmCall): AsyncGenerator<unknown[]>;
  /** Returns the entries of all pages. An entry that does not match the schema `entry` becomes a failure in `unreadable`. */
  list<T>(call: ArmCall, entry: z.ZodType<T>): Promise<ListResult<T>>;
}

const REPEATS: Record<NonNullable<ArmCall["repeat"]>, Partial<CallLimits>> = {
  afterRefusal: { unreachableTries: 1 },
  once: { unreachableTries: 1, throttledTries: 1, concurrencyTries: 1 },
};

/** The service's cloud settings and identity. Of the settings, the client uses only the addresses of the cloud. */
type ArmServices = Omit<CloudServices, "config"> & { config: Pick<CloudServices["config"], "cloud"> };

export function createArm({ config, identity, log, randomness = systemRandomness(), limits }: ArmServices): Arm {
  const endpoint = config.cloud.resourceManager;

  /** Creates a sender for the path of the call only. Links of its pages lead to the same path. */
  const sender = ({ path, target, repeat, signal }: ArmCall, answer: Route["answer"], paged = false) =>
    createSender({
      origin: new URL(endpoint).origin,
      scope: `${endpoint}/.default`,
      identity,
      route: (requestedPath) => (samePath(requestedPath, path) ? { target, answer, paged } : undefined),
      resource: target.resource,
      signal,
      log,
      randomness,
      limits: { ...CALL_LIMITS, ...limits, ...(repeat && REPEATS[repeat]) },
    });

  const request = ({ method, path, apiVersion, query, body }: ArmCall): SentRequest => ({
    method,
    url: `${endpoint}${path}?${new URLSearchParams({ "api-version": apiVersion, ...query })}`,
    body,
  });

  async function* pages(call: ArmCall): AsyncGenerator<unknown[]> {
    const send = await sender(call, page, true);
    let nextRequest: SentRequest | undefined = request(call);
    while (nextRequest) {
      const { value, nextLink }: z.infer<typeof page> = page.parse(await send(nextRequest));
      yield value;
      nextRequest = nextLink ? { url: nextLink } : undefined;
    }
  }

  return {
    async call(call, answer) {
      const send = await sender(call, answer);
      return answer.parse(await send(request(call)));
    },

    async execute(call) {
      const send = await sender(call, "accepted");
      await send(request(call));
    },

    pages,

    async list<T>(call: ArmCall, entry: z.ZodType<T>) {
      const result: ListResult<T> = { entries: [], unreadable: [] };
      for await (const entries of pages(call)) {
        for (const value of entries) {
          const { success, data, error } = entry.safeParse(value);
          if (success) result.entries.push(data);
          else result.unreadable.push(undocumented(call.target, error));
        }
      }
      return result;
    },
  };
}

/** Compares paths. Azure writes the same path in different cases, and with or without a slash at its end. */
export const samePath = (requested: string, path: string): boolean => normalized(requested) === normalized(path);

function normalized(path: string): string {
  try {
    return decodeURIComponent(path).replace(/\/$/, "").toLowerCase();
  } catch {
    return path; // No call uses a path with an invalid escape sequence.
  }
}
