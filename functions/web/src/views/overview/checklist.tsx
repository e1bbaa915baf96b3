import { Button, Link, makeStyles, Text, tokens } from "@fluentui/react-components";
import { CheckmarkCircleRegular, CircleRegular } from "@fluentui/react-icons";
import { type ReactNode, useState } from "react";
import { useMay } from "../../api/access.ts";
import { api } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Card } from "../../parts/card.tsx";
import { useAlertSummary, useCoverage } from "../../parts/status-queries.ts";
import { NotifyOwners } from "./notify-owners.tsx";

const useStyles = makeStyles({
  list: {
    display: "flex",
    flexDirection: "column",
    gap: tokens.spacingVerticalM,
    margin: 0,
    padding: 0,
    listStyleType: "none",
  },
  step: { display: "flex", gap: tokens.spacingHorizontalS, alignItems: "flex-start" },
  icon: { flexShrink: 0, fontSize: tokens.fontSizeBase500, lineHeight: 1 },
  done: { color: tokens.colorStatusSuccessForeground1 },
  text: { display: "flex", flexDirection: "column", gap: tokens.spacingVerticalXS, minWidth: 0 },
});

/** Name of the entry in local storage that hides the card on this device. */
const HIDDEN_KEY = "checklistHidden";

/**
 * The card of the Overview page with the steps that set up a new deployment, for administrators. Hidden when all steps are done,
 * or when the user has hidden it.
 */
export function Checklist() {
  const styles = useStyles();
  const may = useMay();
  const [isHidden, setHidden] = useState(localStorage.getItem(HIDDEN_KEY) !== null);
  const { data: scans } = api.useQuery("get", "/api/assets/discovery/scans", { params: { query: { limit: 1 } } });
  const { data: coverage } = useCoverage();
  const { data: alerts } = useAlertSummary();
  // Single sign-on needs a license.
  const hasSso = may("getSsoConfiguration");
  const { data: sso } = api.useQuery("get", "/auth/sso/config", {}, { enabled: hasSso && !isHidden });
  if (isHidden || !scans || !coverage || !alerts || (hasSso && !sso)) return null;
  const steps: Step[] = [
    {
      title: "Run the first scan",
      isDone: scans.items.length > 0,
      todo: "The card Last scan starts it.",
    },
    {
      title: "Choose who is notified",
      isDone: alerts.enabledRules > 0,
      todo: (
        <>
          <NotifyOwners />
          <Link href={createHref("/alerts")}>Create a rule of your own</Link>
        </>
      ),
    },
    {
      title: `Complete the coverage (${coverage.summary})`,
      isDone: coverage.complete,
      todo: (
        <>
          The message above says what is missing and how to fix it.{" "}
          {may("checkPermissions") && <Link href={createHref("/permissions")}>Check all permissions</Link>}
        </>
      ),
    },
    ...(sso
      ? [
          {
            title: sso.isEnabled ? "Sign in once through single sign-on" : "Set up single sign-on",
            // A configuration might not work until someone signed in with it.
            isDone: sso.isEnabled && sso.lastSuccessfulLoginAt !== null,
            todo: (
              <Link href={createHref("/sso")}>
                {sso.isEnabled
                  ? "It is set up, but nobody has used it yet. Show its status"
                  : "Configure OpenID Connect or SAML"}
              </Link>
            ),
          },
        ]
      : []),
  ];
  if (steps.every(({ isDone }) => isDone)) return null;
  return (
    <Card title="Set up this service">
      <ol className={styles.list} aria-label="Setup steps">
        {steps.map((step) => (
          <SetupStep key={step.title} of={step} />
        ))}
      </ol>
      <div>
        <Button
          size="small"
          onClick={() => {
            localStorage.setItem(HIDDEN_KEY, "true");
            setHidden(true);
          }}
        >
          Hide these steps
        </Button>
      </div>
    </Card>
  );
}

interface Step {
  title: string;
  isDone: boolean;
  /** How to do the step. */
  todo: ReactNode;
}

function SetupStep({ of: { title, isDone, todo } }: { of: Step }) {
  const styles = useStyles();
  return (
    <li className={styles.step}>
      <span className={`${styles.icon} ${isDone ? styles.done : ""}`}>
        {isDone ? <CheckmarkCircleRegular aria-label="Done" /> : <CircleRegular aria-label="To do" />}
      </span>
      <div className={styles.text}>
        <Text weight="semibold">{title}</Text>
        {!isDone && todo}
      </div>
    </li>
  );
}
