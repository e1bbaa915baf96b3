import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { NumberField } from "../../parts/fields.tsx";
import { fieldText, withoutEmpty } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { counted } from "../../parts/plural.ts";
import { QueryResult } from "../../parts/query-result.tsx";

const HISTORIES = {
  audit: "Audit log",
  alerts: "Alert history",
  rotation: "Rotation history",
  scans: "Scan history",
  sync: "Sync history",
} as const satisfies Record<Schemas["HistoryPurge"]["historyType"], string>;

/** The card of the Settings page with the stored histories, their retention, and buttons that delete old entries. */
export function Retention() {
  const stats = api.useQuery("get", "/api/settings/retention/stats");
  return (
    <QueryResult of={stats}>
      {({ histories, auditMinimumRetentionDays }) => (
        <>
          <ul>
            {histories.map((history) => (
              <li key={history.historyType}>
                <History of={history} auditMinimumDays={auditMinimumRetentionDays} />
              </li>
            ))}
          </ul>
          <div>
            <Operate
              operation="purgeHistories"
              title="Delete old entries of all histories"
              action="Delete old entries"
              submit={async (_, purge) =>
                `${counted((await purge({ body: {} })).removed, "entry", "entries")} deleted.`
              }
            >
              <Text>
                Permanently deletes all entries that are older than the retention of their history. You can't undo this.
                The service also does this once a day.
              </Text>
            </Operate>
          </div>
        </>
      )}
    </QueryResult>
  );
}

interface HistoryProps {
  of: Schemas["HistoryStatistics"]["histories"][number];
  /** Fewest days that the audit log must be kept. */
  auditMinimumDays: number;
}

/** One history: the number of its entries, its retention, and the button that deletes old entries. */
function History({
  of: { historyType, retentionDays, total, totalAtLeast = 0, oldest },
  auditMinimumDays,
}: HistoryProps) {
  return (
    <>
      {HISTORIES[historyType]}: {/* Long histories are not counted to the end: `total` is then null. */}
      {total === null ? `more than ${counted(totalAtLeast, "entry", "entries")}` : counted(total, "entry", "entries")}
      {oldest && (
        <>
          , oldest <Instant at={oldest} relative />
        </>
      )}
      , kept for {counted(retentionDays, "day")}{" "}
      <Operate
        operation="purgeHistory"
        title="Delete old entries"
        about={HISTORIES[historyType]}
        action="Delete old entries"
        submit={async (form, purge) =>
          purgeText(
            await purge({
              params: { path: { history_type: historyType } },
              // An empty field is 0 as a number. It is omitted, so that the configured retention applies.
              body: withoutEmpty({ retentionDays: Number(fieldText(form, "retentionDays")) || null }),
            }),
          )
        }
      >
        <Text>
          Permanently deletes entries of the {HISTORIES[historyType].toLowerCase()} that are older than this number of
          days. You can't undo this.
        </Text>
        <NumberField
          name="retentionDays"
          label="Delete entries older than (days)"
          hint={`Leave empty to use the configured retention (${counted(retentionDays, "day")}).${
            historyType === "audit" ? ` Minimum: ${counted(auditMinimumDays, "day")}.` : ""
          } Applies to this deletion only.`}
          min={1}
          max={3650}
        />
      </Operate>
    </>
  );
}

/** Returns the result of a purge as text. `more`: one call deletes a limited number of entries, and some are left. */
const purgeText = ({ removed, retentionDays, more, problem }: Schemas["HistoryPurge"]): string =>
  problem ??
  `${counted(removed, "entry", "entries")} deleted. Entries of the last ${counted(retentionDays, "day")} are kept.${more ? " More old entries remain. Delete old entries again, or wait for the daily deletion." : ""}`;
