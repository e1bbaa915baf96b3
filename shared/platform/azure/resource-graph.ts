import * as z from "zod";
import type { Arm } from "./arm.ts";
import { malformedAnswer } from "./failure.ts";
import { DEPENDENCY_READER } from "./watch-roles.ts";

/**
 * Azure Resource Graph: what the resource manager knows of many resources, in few calls. It follows changes by seconds to
 * minutes, and has no row for what the identity may not read: of a subscription that is denied its answer is empty.
 */
export interface ResourceGraph {
  /**
   * The rows of a query, page by page, not looked at. It has seen all of them only when it ends without an error.
   *
   * @param query - Must project `id`: without it there are no further pages, and the rest is silently missing.
   * @param subscriptions - At most 300: https://learn.microsoft.com/azure/governance/resource-graph/concepts/guidance-for-throttled-requests
   * @throws {CloudFailure} timedOut once the signal is aborted
   */
  query(query: string, subscriptions: readonly string[], signal?: AbortSignal): AsyncGenerator<unknown[]>;
}

/** A text as it stands in a query. */
export const quoted = (text: string): string => `'${text.replace(/[\\']/g, "\\$&")}'`;

const API_VERSION = "2022-10-01";

/** Rows of a page, the most that there are: https://learn.microsoft.com/azure/governance/resource-graph/concepts/work-with-data */
const PER_PAGE = 1000;

/** Rows of one query; one that still goes on would fill the memory. */
const MOST_ROWS = 4_000_000;

/** `resultTruncated` is a text. */
const answer = z.object({
  data: z.array(z.unknown()),
  resultTruncated: z.union([z.string(), z.boolean()]).nullish(),
  $skipToken: z.string().nullish(),
});

export function createResourceGraph(arm: Arm): ResourceGraph {
  const target = {
    operation: "query resources",
    resource: "Azure Resource Graph",
    grant: DEPENDENCY_READER,
  };

  return {
    async *query(query, subscriptions, signal) {
      let skipToken: string | undefined;
      const seen = new Set<string>();
      do {
        const options = { $top: PER_PAGE, resultFormat: "objectArray", ...(skipToken && { $skipToken: skipToken }) };
        const found = await arm.call(
          {
            // It only reads, so it may be sent again.
            method: "POST",
            path: "/providers/Microsoft.ResourceGraph/resources",
            apiVersion: API_VERSION,
            body: { subscriptions, query, options },
            target,
            signal,
          },
          answer,
        );
        yield found.data;
        skipToken = found.$skipToken || undefined;
        if (skipToken === undefined && String(found.resultTruncated) === "true") {
          throw malformedAnswer(target, "rows are missing from the answer");
        }
        if (skipToken !== undefined && (seen.has(skipToken) || seen.size * PER_PAGE >= MOST_ROWS)) {
          throw malformedAnswer(target, "the pages of the response do not end");
        }
        seen.add(skipToken ?? "");
      } while (skipToken !== undefined);
    },
  };
}
