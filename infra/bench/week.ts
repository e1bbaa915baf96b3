import { runWeek, WHOLE_WEEK } from "../../test/support/scan-week.ts";
import { UNLISTED_CHANGES } from "../../test/support/week-changes.ts";
import { startAzurite } from "../local/azurite.ts";
import { atMost, type Section } from "./section.ts";

/** Maximum ratio of the calls of the week to the calls if every full scan read all details. */
const MAX_CALL_RATIO = 0.55;
/** Longest time until a scan detects a change that is visible in the vault's list. Default schedules scan every six hours. */
const LISTED_CHANGE_HOURS = 6;
/**
 * Longest time until a scan detects a change that only the asset's details show. A scan reads the details again after
 * DETAIL_REFRESH_DAYS, seven by default.
 */
const UNLISTED_CHANGE_HOURS = 7 * 24;

/**
 * Benchmark `week`: simulates a week of scheduled scans. Counts their requests to Key Vault and measures how soon they detect
 * changes.
 */
export async function week(): Promise<Section> {
  // This process runs the simulated cloud itself.
  const azurite = await startAzurite();
  try {
    const { seen, unseen, operations, whole } = await runWeek({
      connectionString: azurite.connectionString(),
      ...WHOLE_WEEK,
    });
    const { vaults, secrets, keys, certificates, changes } = WHOLE_WEEK;
    return {
      title: "A week of scheduled scans",
      how: `${vaults} vaults of ${secrets} secrets, ${keys} keys and ${certificates} certificates, ${changes} changes over seven days, four delta scans and one full scan a day, with moved clocks. Hours are from the change to the scan that saw it, and follow from the schedule. Rotation and certificate policies change without a sign, so the refresh of details decides. "Read whole" means that each of the seven full scans reads every detail.`,
      figures: [
        {
          what: "operations of Key Vault in the week",
          value: `${operations}, ${(operations / whole).toFixed(3)}`,
          comparedWith: `${whole}, read whole`,
          bound: atMost(operations / whole, MAX_CALL_RATIO),
        },
        {
          what: "changes that no scan saw",
          value: String(unseen.length),
          comparedWith: `${changes} changes`,
          bound: atMost(unseen.length, 0),
        },
        ...Object.entries(seen).map(([kind, { made, longestHours }]) => ({
          what: `${kind}: longest time until seen`,
          value: `${longestHours.toFixed(1)} h`,
          comparedWith: `${made} of them`,
          bound: atMost(
            longestHours,
            UNLISTED_CHANGES.includes(kind) ? UNLISTED_CHANGE_HOURS : LISTED_CHANGE_HOURS,
            " h",
          ),
        })),
      ],
    };
  } finally {
    await azurite.stop();
  }
}
