import { Text } from "@fluentui/react-components";
import { api } from "../../api/client.ts";
import { counted } from "../../parts/plural.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { violationsHref } from "../../parts/score.tsx";
import { Bars, ShowAll } from "./score-parts.tsx";

/** The card with the number of violations of each owner, those with the most critical ones first. */
export function ByOwner() {
  const owners = api.useQuery("get", "/compliance/owners");
  return (
    <QueryResult of={owners}>
      {({ owners, none, examined, complete }) => {
        const most = Math.max(1, ...owners.map(({ failed }) => failed));
        return (
          <>
            <Text>
              {counted(none, "violation")} without an owner.{" "}
              {!complete && `Only the ${examined.toLocaleString()} most severe violations were counted.`}
            </Text>
            {owners.length > 0 && (
              <ShowAll items={owners} noun="owner">
                {(shown) => (
                  <Bars
                    label="Violations by owner"
                    rows={shown.map(({ owner, failed, bySeverity }) => ({
                      key: owner,
                      name: owner,
                      share: failed / most,
                      text: bySeverity.critical > 0 ? `${bySeverity.critical.toLocaleString()} critical` : "",
                      count: failed,
                      href: violationsHref({ owner }),
                    }))}
                  />
                )}
              </ShowAll>
            )}
          </>
        );
      }}
    </QueryResult>
  );
}
