import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { Answer } from "../../parts/answer.tsx";
import { NumberField } from "../../parts/fields.tsx";
import { given, typed } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";

/** What is kept of what happened, how long, and its end before that. */
export function Histories() {
  const stats = api.useQuery("get", "/api/settings/retention/stats");
  return (
    <Answer of={stats}>
      {({ histories, auditMinimumRetentionDays }) => (
        <>
          <ul>
            {histories.map(({ historyType, retentionDays, total, totalAtLeast = 0, oldest }) => (
              <li key={historyType}>
                {historyType}: {total === null ? `more than ${totalAtLeast.toLocaleString()}` : total.toLocaleString()}{" "}
                entries
                {oldest && (
                  <>
                    , none older than <Instant at={oldest} relative />
                  </>
                )}
                , kept {retentionDays} days{" "}
                <Operate
                  operation="purgeHistory"
                  title="Purge"
                  about={historyType}
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
                  <Text>What is older is removed for good.</Text>
                  <NumberField
                    name="retentionDays"
                    label="Keep so many days"
                    hint={
                      historyType === "audit"
                        ? `Empty: ${retentionDays}. At least ${auditMinimumRetentionDays} are kept.`
                        : `Empty: ${retentionDays}`
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
              title="Purge all that is due"
              action="Purge"
              submit={async (_, purge) => `${(await purge({ body: {} })).removed.toLocaleString()} entries removed.`}
            >
              <Text>
                What is older than the settings keep is removed for good. This happens by itself once a day, too.
              </Text>
            </Operate>
          </div>
        </>
      )}
    </Answer>
  );
}

const purged = ({ removed, retentionDays, more, problem }: Schemas["HistoryPurge"]): string =>
  problem ??
  `${removed.toLocaleString()} entries removed; the last ${retentionDays} days are kept.${more ? " More is due: purge again, or leave it to the daily run." : ""}`;
