import { Text } from "@fluentui/react-components";
import { api } from "../../api/client.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { violationsHref } from "../../parts/score.tsx";
import { Bars, ShowAll } from "./score-parts.tsx";

/**
 * The card with the number of violations without an owner, then of each owner. The owners with the most critical violations are
 * first.
 */
export function ByOwner() {
  const owners = api.useQuery("get", "/compliance/owners");
  return (
    <QueryResult of={owners}>
      {({ owners, none, noneBySeverity, examined, complete }) => {
        // The longest bar has the largest number. The 1 prevents a division by 0.
        const maxCount = Math.max(none, 1, ...owners.map(({ failed }) => failed));
        const rows = owners.map(({ owner, failed, bySeverity }) => ({
          key: `owner ${owner}`,
          name: owner,
          share: failed / maxCount,
          text: criticalText(bySeverity),
          count: failed,
          href: violationsHref({ owner }),
        }));
        const noOwner = {
          key: "none",
          name: "No owner",
          share: none / maxCount,
          text: criticalText(noneBySeverity),
          count: none,
          href: violationsHref({ hasOwner: "false" }),
        };
        if (none === 0 && rows.length === 0) return <Text>No violations were found.</Text>;
        return (
          <>
            <Text size={200}>
              {none > 0 ? "First those without an owner, then owners" : "Owners"} with the most critical violations
              first. The bars show all violations, of any severity.{" "}
              {!complete && `Only the ${examined.toLocaleString()} most severe violations were counted.`}
            </Text>
            <ShowAll items={[...(none > 0 ? [noOwner] : []), ...rows]} noun="row">
              {(shown) => <Bars label="Violations by owner" rows={shown} />}
            </ShowAll>
          </>
        );
      }}
    </QueryResult>
  );
}

/** Returns the number of violations with a critical severity. Empty without one. */
const criticalText = ({ critical }: { critical: number }): string =>
  critical > 0 ? `${critical.toLocaleString()} of critical severity` : "";
