import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { NumberField } from "../../parts/fields.tsx";
import { given, typed } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { QueryResult } from "../../parts/query-result.tsx";

const HISTORIES = {
  audit: "Audit log",
  alerts: "Alert history",
  rotation: "Rotation history",
  scans: "Scan history",
  sync: "Sync history",
} as const satisfies Record<Schemas["HistoryPurge"]["historyType"], string>;

/** The stored histories with their retention, and buttons that purge old entries. */
export function Retention() {
  const stats = api.useQuery("get", "/api/settings/retention/stats");
  return (
    <QueryResult of={stats}>
      {({ histories, auditMinimumRetentionDays }) => (
        <>
          <ul>
            {histories.map(({ historyType, retentionDays, total, totalAtLeast = 0, oldest }) => (
              <li key={historyType}>
                {HISTORIES[historyType]}:{" "}
                {total === null ? `more than ${totalAtLeast.toLocaleString()}` : total.toLocaleString()} entries
                {oldest && (
                  <>
                    , oldest <Instant at={oldest} relative />
                  </>
                )}
                , retention {retentionDays} days{" "}
                <Operate
                  operation="purgeHistory"
                  title="Purge"
                  about={HISTORIES[historyType]}
                  action="Purge"
                  submit={async (form, purge) =>
                    purged(
                      await purge({
                        params: { path: { history_type: historyType } },
                        body: given({ retentionDays: Number(typed(form, "retentionDays")) || null }),
                      }),
                    )
                  }
                >
                  <Text>Permanently deletes entries that are older than the retention.</Text>
                  <NumberField
                    name="retentionDays"
                    label="Retention (days)"
                    hint={
                      historyType === "audit"
                        ? `Leave empty to keep ${retentionDays} days. Minimum: ${auditMinimumRetentionDays} days.`
                        : `Leave empty to keep ${retentionDays} days.`
                    }
                    min={1}
                    max={3650}
                  />
                </Operate>
              </li>
            ))}
          </ul>
          <div>
            <Operate
              operation="purgeHistories"
              title="Purge all histories"
              action="Purge all"
              submit={async (_, purge) => `${(await purge({ body: {} })).removed.toLocaleString()} entries deleted.`}
            >
              <Text>
                Permanently deletes all entries that are older than their retention. The service also does this once a
                day.
              </Text>
            </Operate>
          </div>
        </>
      )}
    </QueryResult>
  );
}

const purged = ({ removed, retentionDays, more, problem }: Schemas["HistoryPurge"]): string =>
  problem ??
  `${removed.toLocaleString()} entries deleted. The last ${retentionDays} days are kept.${more ? " More entries are due. Purge again, or wait for the daily purge." : ""}`;
