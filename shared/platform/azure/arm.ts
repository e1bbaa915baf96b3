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

/** One call to the resource manager, or one list. */
export interface ArmCall {
  method?: SentRequest["method"];
  /** The path after the endpoint, with encoded segments. See `resourcePath`. */
  path: string;
  apiVersion: string;
  query?: Readonly<Record<string, string>>;
  body?: object;
  target: CallTarget;
  /**
   * Limits retries. Undefined: as the call policy says. `afterRefusal`: only if an answer says that nothing was done. `once`:
   * never, because the body can be outdated by then.
   */
  repeat?: "afterRefusal" | "once";
  signal?: AbortSignal | undefined;
}

/** A whole list: its entries, and a failure for each entry that is not what the service documents. */
export interface Listed<T> {
  entries: T[];
  unreadable: CloudFailure[];
}

/**
 * Calls any path of Azure's resource manager by the call policy. Every method throws `CloudFailure`, with the code `timedOut`
 * once its signal is aborted. https://learn.microsoft.com/rest/api/azure/
 */
export interface Arm {
  /** Returns the members of the answer that `answer` describes. Success is 200. */
  call<T>(call: ArmCall, answer: z.ZodType<T>): Promise<T>;
  /** Success is 200, 202 or 204. If the operation continues after the answer, the caller must check its effect. */
  act(call: ArmCall): Promise<void>;
  /**
   * Returns the unchecked entries of a list, page by page. The list is complete only if the iteration ends without an error.
   */
  pages(call: ArmCall): AsyncGenerator<unknown[]>;
  /** Returns all pages of a list, with entries as `entry` describes them. */
  list<T>(call: ArmCall, entry: z.ZodType<T>): Promise<Listed<T>>;
}

const REPEATS: Record<NonNullable<ArmCall["repeat"]>, Partial<CallLimits>> = {
  afterRefusal: { unreachableTries: 1 },
  once: { unreachableTries: 1, throttledTries: 1, concurrencyTries: 1 },
};

export function createArm({ config, identity, log, randomness = systemRandomness(), limits }: CloudServices): Arm {
  const endpoint = config.cloud.resourceManager;

  /** Creates a sender for the path of the call only. Links of its pages lead to the same path. */
  const sender = ({ path, target, repeat, signal }: ArmCall, answer: Route["answer"], paged = false) =>
    createSender({
      origin: new URL(endpoint).origin,
      scope: `${endpoint}/.default`,
      identity,
      route: (asked) => (samePath(asked, path) ? { target, answer, paged } : undefined),
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
    let asked: SentRequest | undefined = request(call);
    while (asked) {
      const { value, nextLink }: z.infer<typeof page> = page.parse(await send(asked));
      yield value;
      asked = nextLink ? { url: nextLink } : undefined;
    }
  }

  return {
    async call(call, answer) {
      const send = await sender(call, answer);
      return answer.parse(await send(request(call)));
    },

    async act(call) {
      const send = await sender(call, "accepted");
      await send(request(call));
    },

    pages,

    async list<T>(call: ArmCall, entry: z.ZodType<T>) {
      const found: Listed<T> = { entries: [], unreadable: [] };
      for await (const entries of pages(call)) {
        for (const one of entries) {
          const { success, data, error } = entry.safeParse(one);
          if (success) found.entries.push(data);
          else found.unreadable.push(undocumented(call.target, error));
        }
      }
      return found;
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
