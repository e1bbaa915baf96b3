import { Button, ProgressBar, Text } from "@fluentui/react-components";
import { useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { useMay } from "../../api/access.ts";
import { api, type Schemas } from "../../api/client.ts";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { counted } from "../../parts/plural.ts";
import { ProblemNotice } from "../../parts/problem-notice.tsx";
import { QueryResult } from "../../parts/query-result.tsx";

/** Returns whether a scan has ended. */
const isOver = ({ status }: Schemas["Scan"]): boolean => status !== "queued" && status !== "running";

const STATUSES: Record<Schemas["Scan"]["status"], string> = {
  queued: "Queued.",
  running: "In progress.",
  completed: "Completed.",
  partial: "Completed, but some subscriptions or vaults could not be read.",
  failed: "Failed.",
  timedOut: "Timed out.",
  cancelled: "Canceled.",
};
const MODES: Record<Schemas["Scan"]["mode"], string> = {
  full: "full scan",
  delta: "scan of changed vaults only",
  force: "full scan, including vaults that failed recently",
};

/** The card of the Overview page with the most recent scan, its progress, and a button that starts a new scan. */
export function LastScan() {
  const may = useMay();
  const queries = useQueryClient();
  const scans = api.useQuery("get", "/api/assets/discovery/scans", { params: { query: { limit: 1 } } });
  const start = api.useMutation("post", "/api/assets/discovery/scan", { onSettled: () => scans.refetch() });
  return (
    <QueryResult of={scans}>
      {({ items: [scan] }) => (
        <>
          {scan ? (
            <>
              <Text>
                {STATUSES[scan.status]} Started by {scan.requestedBy} <Instant at={scan.createdAt} relative /> (
                {MODES[scan.mode]}
                {scan.subscriptions && `, ${counted(scan.subscriptions.length, "selected subscription")}`}).
              </Text>
              {scan.failure && (
                <Text>
                  {scan.failure.message} {scan.failure.remedy}
                </Text>
              )}
              {!isOver(scan) && (
                <>
                  <Progress scanId={scan.scanId} onEnd={() => void queries.invalidateQueries()} />
                  <div>
                    <StopScan scanId={scan.scanId} />
                  </div>
                </>
              )}
            </>
          ) : (
            <Text>No scan yet. Start a scan to build the inventory.</Text>
          )}
          {start.error && <ProblemNotice problem={start.error} />}
          {may("startScan") ? (
            <div>
              <Button
                disabled={start.isPending || (scan && !isOver(scan))}
                onClick={() => start.mutate({ body: { mode: "full" } })}
              >
                Start scan
              </Button>
            </div>
          ) : (
            <Text size={200}>To start a scan, ask a user with the role operator or admin.</Text>
          )}
        </>
      )}
    </QueryResult>
  );
}

/** The button that stops a scan, with a question that says what happens to the results so far. */
const StopScan = ({ scanId }: { scanId: string }) => (
  <Operate
    operation="cancelScan"
    title="Stop scan"
    action="Stop scan"
    submit={(_, cancel) => cancel({ params: { path: { scan_id: scanId } } })}
  >
    <Text>
      Stop this scan? Vaults that were read stay in the inventory with their new values. The scan finishes the vaults
      that it reads now. All other vaults keep the values of their last scan. You can start a new scan at any time.
    </Text>
  </Operate>
);

/**
 * The progress of a scan. Polls with an interval that grows from 1.5 to 15 seconds, and not while the page is hidden. `onEnd`
 * is called when the scan has ended, and refreshes the whole page. `vaultsTotal` is 0 until the scan is planned.
 */
function Progress({ scanId, onEnd }: { scanId: string; onEnd(): void }) {
  const status = api.useQuery(
    "get",
    "/api/assets/discovery/scan/{scan_id}/status",
    { params: { path: { scan_id: scanId } } },
    {
      refetchInterval: ({ state: { dataUpdateCount, errorUpdateCount } }) =>
        Math.min(15_000, 1_500 * 1.3 ** (dataUpdateCount + errorUpdateCount)),
      staleTime: 0,
    },
  );
  const hasEnded = status.data !== undefined && isOver(status.data);
  useEffect(() => {
    if (hasEnded) onEnd();
  }, [hasEnded, onEnd]);
  if (!status.data) return <ProgressBar aria-label="Scan in progress" />;
  const { vaultsDone, vaultsTotal } = status.data.progress;
  return (
    <>
      <ProgressBar aria-label="Vaults scanned" value={vaultsTotal ? vaultsDone / vaultsTotal : undefined} />
      <Text role="status">
        {vaultsTotal
          ? `${vaultsDone.toLocaleString()} of ${counted(vaultsTotal, "vault")} scanned`
          : `${counted(vaultsDone, "vault")} scanned`}
      </Text>
    </>
  );
}
