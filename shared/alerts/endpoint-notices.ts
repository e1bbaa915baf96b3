import type { EndpointRecord } from "../certificates/endpoint.ts";
import { alertProblems, describeProblems } from "../certificates/endpoint-state.ts";
import type { CertificateEndpoints } from "../certificates/endpoints.ts";
import { fingerprint } from "../inventory/asset.ts";
import type { Clock } from "../platform/runtime.ts";
import type { AutomationSource, PendingNotice } from "./automation-events.ts";

/**
 * Creates the source of events about endpoints that don't serve the current version of their certificate, or serve it wrongly.
 * There is one event for each endpoint and time since which it has problems.
 */
export function createEndpointNotices(
  endpoints: Pick<CertificateEndpoints, "stale">,
  { clock }: { clock: Clock },
): AutomationSource {
  return {
    async *notices(type) {
      if (type !== "staleEndpoint") return;
      for await (const page of endpoints.stale())
        yield page.flatMap((row): PendingNotice[] =>
          row.staleSince === undefined
            ? []
            : [
                {
                  id: `endpoint.${fingerprint([row.rowKey, row.staleSince])}`,
                  at: row.staleSince,
                  notice: async () => textOf(row, clock.now()),
                },
              ],
        );
    },
  };
}

function textOf(row: EndpointRecord, now: Date): Awaited<ReturnType<PendingNotice["notice"]>> {
  const { vaultName, name, host, port, resource, serial, problems } = row;
  const relevant = alertProblems(row, now);
  if (relevant.length === 0) return undefined;
  const described = describeProblems(row).filter(({ code }) => relevant.includes(code));
  const place = resource === undefined ? "" : ` (${resource.name})`;
  return {
    vaultName,
    title: `${vaultName}/${name} at ${host}:${port}`,
    urgency: problems?.includes("expired") || problems?.includes("otherName") ? "critical" : "warning",
    what: "is not served as it should be",
    why: `${described.map(({ detail }) => detail).join(" ")}${serial === undefined ? "" : ` Serial number: ${serial}.`}`,
    done: `No changes were made at ${host}:${port}${place}.`,
    safe: "",
    next: described.map(({ action }) => action).join(" "),
  };
}
