import { Link, makeStyles, Text, tokens } from "@fluentui/react-components";
import type { ReactNode } from "react";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Instant } from "../../parts/instant.tsx";
import { QueryResult } from "../../parts/query-result.tsx";

type SubscriptionList = Schemas["SubscriptionList"];

/** Higher than for vaults, because one unread subscription can hide hundreds of vaults. */
const SUBSCRIPTIONS_SHOWN = 20;
const VAULTS_SHOWN = 5;

const useStyles = makeStyles({
  list: {
    display: "flex",
    flexDirection: "column",
    gap: tokens.spacingVerticalS,
    margin: 0,
    paddingInlineStart: tokens.spacingHorizontalXL,
    overflowWrap: "anywhere",
  },
});

/**
 * Lists the subscriptions and vaults that recent scans could not read, with the reason and the fix. Subscriptions come first,
 * because the vaults of an unread subscription are unknown. The card reports that everything was read only if both lists are
 * empty and the last scan of all subscriptions completed.
 */
export function ReadFailures() {
  const subscriptions = api.useQuery("get", "/subscriptions", {
    params: { query: { unread: true, limit: SUBSCRIPTIONS_SHOWN } },
  });
  const vaults = api.useQuery("get", "/api/assets/discovery/vaults", {
    params: { query: { failing: true, limit: VAULTS_SHOWN } },
  });
  return (
    <>
      <QueryResult of={subscriptions}>{(unread) => <UnreadSubscriptions of={unread} />}</QueryResult>
      <QueryResult of={vaults}>{(failing) => <FailingVaults of={failing} />}</QueryResult>
      {subscriptions.data?.items.length === 0 &&
        subscriptions.data.lastFailure === null &&
        vaults.data?.items.length === 0 && <NoFailures lastScan={subscriptions.data.lastScan} />}
    </>
  );
}

/** The unread subscriptions. `lastFailure`: why the list of subscriptions itself could not be read. */
function UnreadSubscriptions({ of: { items, total, lastFailure } }: { of: SubscriptionList }) {
  const styles = useStyles();
  const href = createHref("/vaults", { unread: "true" });
  if (items.length === 0 && lastFailure === null) return null;
  return (
    <>
      <ul className={styles.list} aria-label="Subscriptions that could not be read">
        {lastFailure && (
          <li>
            <strong>The list of subscriptions</strong>: <Failure of={lastFailure} />
          </li>
        )}
        {items.map((subscription) => (
          <li key={subscription.subscriptionId}>
            Subscription{" "}
            <Link href={href}>
              <bdi>{subscription.name}</bdi>
            </Link>
            : <WhyUnread of={subscription} />
          </li>
        ))}
      </ul>
      <More shown={SUBSCRIPTIONS_SHOWN} total={total} href={href}>
        subscriptions that could not be read
      </More>
    </>
  );
}

/** Why a subscription is unread. Without a failure, no scan has read it yet, or its last scan was stopped early. */
function WhyUnread({ of: { lastFailure, lastScan } }: { of: SubscriptionList["items"][number] }) {
  if (lastFailure) return <Failure of={lastFailure} />;
  if (!lastScan) return "No scan has read this subscription yet.";
  return (
    <>
      Its last scan {lastScan.status === "timedOut" ? "timed out" : "was canceled"} before it read every vault (
      <Instant at={lastScan.finishedAt} relative />
      ).
    </>
  );
}

/** The vaults that could not be read, each with its first failure only. */
function FailingVaults({ of: { items, total } }: { of: Schemas["VaultList"] }) {
  const styles = useStyles();
  if (items.length === 0) return null;
  return (
    <>
      <ul className={styles.list} aria-label="Vaults that could not be read">
        {items.map(({ name, failures: [failure] }) => (
          <li key={name}>
            Vault <strong>{name}</strong>: <Failure of={failure!} />
          </li>
        ))}
      </ul>
      <More shown={VAULTS_SHOWN} total={total} href={createHref("/vaults", { failing: "true" })}>
        vaults that could not be read
      </More>
    </>
  );
}

const Failure = ({ of: { message, remedy, at } }: { of: { message: string; remedy: string; at: string } }) => (
  <>
    {message} {remedy} (<Instant at={at} relative />)
  </>
);

/** A link to the whole list on the Vaults page, if this card shows only its start. */
function More(props: { shown: number; total: number | null; href: string; children: ReactNode }) {
  const { shown, total, href, children } = props;
  if (total === null || total <= shown) return null;
  return (
    <Link href={href}>
      All {total.toLocaleString()} {children}
    </Link>
  );
}

/** How a scan ended, as the end of a sentence. */
const RESULTS: Partial<Record<NonNullable<SubscriptionList["lastScan"]>["status"], string>> = {
  partial: "was only partially completed",
  failed: "failed",
  timedOut: "timed out",
  cancelled: "was canceled",
};

/** Shown when no failure is known. The meaning depends on the last scan of all subscriptions. */
function NoFailures({ lastScan }: Pick<SubscriptionList, "lastScan">) {
  if (!lastScan) return <Text>Unknown: no scan of all subscriptions has finished yet.</Text>;
  if (lastScan.status !== "completed") {
    return (
      <Text>
        The last scan of all subscriptions {RESULTS[lastScan.status]}, so it did not read everything. The card Last scan
        and the Vaults page show what is missing.
      </Text>
    );
  }
  return (
    <Text>
      All subscriptions and vaults were read (<Instant at={lastScan.finishedAt} relative />
      ).
    </Text>
  );
}
