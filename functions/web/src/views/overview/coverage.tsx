import {
  Link,
  MessageBar,
  MessageBarBody,
  MessageBarTitle,
  makeStyles,
  Spinner,
  Text,
  tokens,
} from "@fluentui/react-components";
import { useMay } from "../../api/access.ts";
import type { Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Instant } from "../../parts/instant.tsx";
import { QueryFailure } from "../../parts/query-result.tsx";
import { gapsText, isListUnread, useCoverage, vaultNoun } from "../../parts/status-queries.ts";
import { useIsNarrow } from "../../parts/width.ts";

type Coverage = Schemas["Coverage"];
type Gap = Schemas["CoverageGap"];

const useStyles = makeStyles({
  list: {
    display: "flex",
    flexDirection: "column",
    gap: tokens.spacingVerticalXS,
    margin: 0,
    paddingInlineStart: tokens.spacingHorizontalXL,
    overflowWrap: "anywhere",
  },
});

/**
 * The lists of gaps, in the order in which they are shown. `more`: the link to the whole list. Gaps of the kinds `scan` (the last scan
 * did not complete) and `storedRows` (stored rows can't be read) can hide subscriptions, so they are in the first list.
 */
const LISTS: { label: string; kinds: Gap["kind"][]; noun: string; more: { href: string; text: string } }[] = [
  {
    label: "Subscriptions that could not be read",
    kinds: ["scan", "storedRows", "subscriptionList", "subscription"],
    noun: "Subscription ",
    more: { href: createHref("/vaults", { unread: "true" }), text: "Show all subscriptions that could not be read" },
  },
  {
    label: "Vaults that could not be read",
    kinds: ["vault"],
    noun: "Vault ",
    more: { href: createHref("/vaults", { failing: "true" }), text: "Show all vaults that could not be read" },
  },
  {
    label: "Applications and tenants that could not be read",
    kinds: ["applications", "b2cTenant"],
    noun: "",
    more: { href: createHref("/b2c"), text: "Show all B2C tenants" },
  },
];
/** Number of gaps that each list shows. */
const MAX_SHOWN = 3;
/** The list of subscriptions shows more, because one unread subscription can hide hundreds of vaults. */
const MAX_SUBSCRIPTIONS_SHOWN = 10;

/**
 * The first line of the Overview page: how much of the company the service reads, and each gap with its fix. Red if there is
 * a gap.
 */
export function Coverage() {
  const coverage = useCoverage();
  const mayCheck = useMay()("checkPermissions");
  if (!coverage.data) {
    return coverage.error ? <QueryFailure of={coverage} /> : <Spinner size="small" label="Loading" />;
  }
  const { complete, gaps, gapsTotal, subscriptions } = coverage.data;
  // Without a time, no scan of all subscriptions has finished yet. The API lists such a gap before those of subscriptions.
  const isUnknown = gaps[0]?.kind === "scan" && gaps[0].at === null;
  return (
    <>
      <QueryFailure of={coverage} />
      <MessageBar intent={complete ? "success" : isUnknown ? "warning" : "error"} layout="multiline">
        <MessageBarBody>
          <MessageBarTitle>
            Coverage:{" "}
            {isUnknown && subscriptions.read === 0 ? (
              "unknown until the first scan has ended"
            ) : (
              <>
                <Shares of={coverage.data} /> read.
              </>
            )}
          </MessageBarTitle>
          {!complete && `${gapsText(gapsTotal)} `}
          {!complete && mayCheck && <Link href={createHref("/permissions")}>Check all permissions</Link>}
          {complete ? "Everything was read." : LISTS.map((list) => <GapList key={list.label} of={list} gaps={gaps} />)}
        </MessageBarBody>
      </MessageBar>
    </>
  );
}

/** How many subscriptions, vaults, applications and tenants were read, each number with a link to their list. */
function Shares({ of: coverage }: { of: Coverage }) {
  const { subscriptions, vaults, applications, b2cTenants } = coverage;
  const shares = [
    {
      share: subscriptions,
      noun: isListUnread(coverage) ? "known subscription" : "subscription",
      href: createHref("/vaults"),
    },
    { share: vaults, noun: vaultNoun(coverage), href: createHref("/vaults") },
    { share: applications, noun: "application", href: createHref("/rotation") },
    { share: b2cTenants, noun: "B2C tenant", href: createHref("/b2c") },
  ].filter(({ share }) => share !== null);
  return shares.map(({ share, noun, href }, index) => (
    <span key={noun}>
      {index > 0 && ", "}
      <Link href={href}>
        {share!.read.toLocaleString()} of {share!.total.toLocaleString()} {noun}
        {share!.total === 1 ? "" : "s"}
      </Link>
    </span>
  ));
}

/** How to fix a gap. Folded on a phone, where the fixes would move all else off the screen. */
function Remedy({ of: { remedy } }: { of: Gap }) {
  return useIsNarrow() ? (
    <details>
      <summary>How to fix</summary>
      {remedy}
    </details>
  ) : (
    remedy
  );
}

function GapList({ of: { label, kinds, noun, more }, gaps }: { of: (typeof LISTS)[number]; gaps: Gap[] }) {
  const styles = useStyles();
  const listedGaps = gaps.filter(({ kind }) => kinds.includes(kind));
  const maxShown = kinds.includes("subscription") ? MAX_SUBSCRIPTIONS_SHOWN : MAX_SHOWN;
  if (listedGaps.length === 0) return null;
  return (
    <>
      <ul className={styles.list} aria-label={label}>
        {listedGaps.slice(0, maxShown).map((gap) => (
          <li key={`${gap.kind} ${gap.name}`}>
            {gap.kind === "subscription" || gap.kind === "vault" ? noun : ""}
            <Link href={more.href}>
              <bdi>{gap.name}</bdi>
            </Link>
            : {gap.message} <Remedy of={gap} />
            {gap.at !== null && (
              <>
                {" ("}
                <Instant at={gap.at} relative />
                {")"}
              </>
            )}
          </li>
        ))}
      </ul>
      {listedGaps.length > maxShown && (
        <Text block>
          <Link href={more.href}>{more.text}</Link>
        </Text>
      )}
    </>
  );
}
