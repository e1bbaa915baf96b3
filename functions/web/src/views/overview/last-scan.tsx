import { Button, ProgressBar, Text } from "@fluentui/react-components";
import { useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { useMay } from "../../api/access.ts";
import { api, type Schemas } from "../../api/client.ts";
import { Answer } from "../../parts/answer.tsx";
import { Instant } from "../../parts/instant.tsx";
import { ProblemNotice } from "../../parts/problem-notice.tsx";

const isOver = ({ status }: Schemas["Scan"]): boolean => status !== "queued" && status !== "running";

const STATUSES: Record<Schemas["Scan"]["status"], string> = {
  queued: "It waits to begin.",
  running: "It is under way.",
  completed: "All was read.",
  partial: "Some vaults could not be read.",
  failed: "It failed.",
  timedOut: "It did not end in time.",
  cancelled: "It was cancelled.",
};
const MODES: Record<Schemas["Scan"]["mode"], string> = {
  full: "everything",
  delta: "what changed",
  force: "everything, also of vaults that failed lately",
};

/** The newest scan; one can be started and watched. */
export function LastScan() {
  const may = useMay();
  const queries = useQueryClient();
  const scans = api.useQuery("get", "/api/assets/discovery/scans", { params: { query: { limit: 1 } } });
  const start = api.useMutation("post", "/api/assets/discovery/scan", { onSettled: () => scans.refetch() });
  return (
    <Answer of={scans}>
      {({ items: [scan] }) => (
        <>
          {scan ? (
            <>
              <Text>
                {STATUSES[scan.status]} Begun by {scan.requestedBy} <Instant at={scan.createdAt} relative />, reading{" "}
                {MODES[scan.mode]}.
              </Text>
              {scan.failure && (
                <Text>
                  {scan.failure.message} {scan.failure.remedy}
                </Text>
              )}
              {!isOver(scan) && <Progress scanId={scan.scanId} ended={() => void queries.invalidateQueries()} />}
            </>
          ) : (
            <Text>Nothing was scanned yet.</Text>
          )}
          {start.error && <ProblemNotice problem={start.error} />}
          {may("startScan") && (
            <div>
              <Button
                disabled={start.isPending || (scan && !isOver(scan))}
                onClick={() => start.mutate({ body: { mode: "full" } })}
              >
                Scan now
              </Button>
            </div>
          )}
        </>
      )}
    </Answer>
  );
}

/** Asks less and less often, and not while the page is hidden. */
function Progress({ scanId, ended }: { scanId: string; ended(): void }) {
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
  const over = status.data !== undefined && isOver(status.data);
  useEffect(() => {
    if (over) ended();
  }, [over, ended]);
  if (!status.data) return <ProgressBar aria-label="Scanning" />;
  const { vaultsDone, vaultsTotal } = status.data.progress;
  return (
    <>
      <ProgressBar aria-label="Vaults that were read" value={vaultsTotal ? vaultsDone / vaultsTotal : undefined} />
      <Text role="status">
        {vaultsDone} of {vaultsTotal ?? "some"} vaults
      </Text>
    </>
  );
}
