import { Link, makeStyles, Text, tokens } from "@fluentui/react-components";
import { api } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { changedName } from "../../parts/asset-name.ts";
import { Instant } from "../../parts/instant.tsx";
import { QueryResult } from "../../parts/query-result.tsx";
import { useSummary } from "./summary.ts";

const MAX_SHOWN_CHANGES = 5;
const KINDS = [
  { change: "added", text: "added" },
  { change: "updated", text: "modified" },
  { change: "removed", text: "deleted" },
] as const;

const useStyles = makeStyles({
  links: { display: "flex", flexWrap: "wrap", gap: tokens.spacingHorizontalL, lineHeight: "24px" },
  list: {
    display: "flex",
    flexDirection: "column",
    gap: tokens.spacingVerticalXS,
    margin: 0,
    padding: 0,
    listStyleType: "none",
    overflowWrap: "anywhere",
  },
});

/** The card of the Overview page with the newest changes of assets, and their numbers in the last seven days. */
export function RecentChanges() {
  const styles = useStyles();
  const newest = api.useQuery("get", "/api/assets/discovery/changes", {
    params: { query: { limit: MAX_SHOWN_CHANGES } },
  });
  return (
    <>
      <QueryResult of={useSummary()}>
        {({ changes }) => (
          <div className={styles.links}>
            <Text>Last 7 days:</Text>
            {KINDS.map(({ change, text }) => (
              <Link key={change} href={createHref("/changes", { change, since: changes.since })}>
                {changes.complete ? "" : "at least "}
                {changes[change].toLocaleString()} {text}
              </Link>
            ))}
          </div>
        )}
      </QueryResult>
      <QueryResult of={newest}>
        {({ items }) =>
          items.length === 0 ? (
            <Text>No changes were found yet. Scans and discoveries find them.</Text>
          ) : (
            <ul className={styles.list} aria-label="Newest changes">
              {items.map(({ at, change, assetId, type, vaultName, ...asset }) => (
                <li key={`${at} ${change} ${assetId}`}>
                  {KINDS.find((kind) => kind.change === change)!.text} {type}{" "}
                  {change === "removed" ? (
                    <bdi>{changedName(asset)}</bdi>
                  ) : (
                    <Link href={createHref(`/inventory/${encodeURIComponent(assetId)}`)}>
                      <bdi>{changedName(asset)}</bdi>
                    </Link>
                  )}{" "}
                  {vaultName !== null && <>in {vaultName} </>}(<Instant at={at} relative />)
                </li>
              ))}
            </ul>
          )
        }
      </QueryResult>
    </>
  );
}
