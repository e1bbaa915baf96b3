import { Link, makeStyles, Text, tokens } from "@fluentui/react-components";
import { useEffect, useRef } from "react";
import { createHref } from "../../parts/address.ts";
import { Card } from "../../parts/card.tsx";
import { counted } from "../../parts/plural.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { ScoreHistory } from "../../parts/score.tsx";
import { useCoverage, useScore } from "../../parts/status-queries.ts";
import { View } from "../../parts/view.tsx";
import { Exemptions } from "./exemptions.tsx";
import { Frameworks } from "./frameworks.tsx";
import { AllFailingChecks, BySubscription } from "./score-parts.tsx";
import { Violations } from "./violations.tsx";
import { ByOwner } from "./violations-by-owner.tsx";

const useStyles = makeStyles({
  cards: {
    display: "grid",
    gridTemplateColumns: "repeat(auto-fit, minmax(min(100%, 360px), 1fr))",
    gap: tokens.spacingHorizontalL,
  },
});

/** What the score leaves out, because the last scans could not read it. Empty if they read everything. */
function NotCovered() {
  const gaps = useCoverage().data?.gaps ?? [];
  const subscriptions = gaps.filter(({ kind }) => kind === "subscription").length;
  const vaults = gaps.filter(({ kind }) => kind === "vault").length;
  if (subscriptions + vaults === 0) return null;
  return (
    <Text>
      The score leaves out what the last scans could not read:{" "}
      {subscriptions > 0 && (
        <Link href={createHref("/vaults", { unread: "true" })}>{counted(subscriptions, "subscription")}</Link>
      )}
      {subscriptions > 0 && vaults > 0 && " and "}
      {vaults > 0 && <Link href={createHref("/vaults", { failing: "true" })}>{counted(vaults, "vault")}</Link>}. Assets
      of earlier scans still count.
    </Text>
  );
}

/** The Compliance page: the score over time, by check, subscription, owner and framework, violations, and exemptions. */
export default function Compliance() {
  const styles = useStyles();
  const violations = useRef<HTMLDivElement>(null);
  const filters = useSearchParams()[0].toString();
  // A link to filtered violations, here or on another page, scrolls to their list. A change in the list's own filters does not.
  useEffect(() => {
    if (filters === "" || violations.current?.contains(document.activeElement)) return undefined;
    // A timeout, so that this runs after the shell has scrolled a new view to its top.
    const timer = setTimeout(() => violations.current?.scrollIntoView());
    return () => clearTimeout(timer);
  }, [filters]);
  return (
    <View title="Compliance">
      <div className={styles.cards}>
        <Card title="Score">
          <NotCovered />
          <QueryResult of={useScore()}>{(score) => <ScoreHistory compliance={score} height={200} />}</QueryResult>
        </Card>
        <Card title="Failing checks">
          <AllFailingChecks />
        </Card>
        <Card title="By subscription">
          <BySubscription />
        </Card>
        <Card title="By owner">
          <ByOwner />
        </Card>
      </div>
      <Card title="Frameworks">
        <Text>
          A framework is a published standard with controls. Expand a framework to see the result of each control.
        </Text>
        <Frameworks />
      </Card>
      <div ref={violations}>
        <Card title="Violations">
          <Violations />
        </Card>
      </div>
      <Card title="Certificates">
        <Text>
          Public certificates may be valid for ever fewer days, so they are renewed more often.{" "}
          <Link href={createHref("/compliance/readiness")}>Show which certificates are ready</Link>
        </Text>
      </Card>
      <Card title="Algorithms">
        <Text>
          Standards end the use of RSA and elliptic curves, which a quantum computer breaks.{" "}
          <Link href={createHref("/compliance/post-quantum")}>Show keys and certificates by urgency</Link>
        </Text>
      </Card>
      <Card title="Exemptions">
        <Exemptions />
      </Card>
    </View>
  );
}
