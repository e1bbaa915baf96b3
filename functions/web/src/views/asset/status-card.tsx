import {
  Link,
  MessageBar,
  MessageBarBody,
  MessageBarTitle,
  makeStyles,
  Text,
  tokens,
} from "@fluentui/react-components";
import { useState } from "react";
import { useMay } from "../../api/access.ts";
import { api, type Schemas } from "../../api/client.ts";
import { assetTitle } from "../../parts/asset-name.ts";
import { Card } from "../../parts/card.tsx";
import { Exempt } from "../../parts/exempt.tsx";
import { Instant } from "../../parts/instant.tsx";
import { BY_CURSOR } from "../../parts/paged-table.tsx";
import { counted } from "../../parts/plural.ts";
import { RENEWERS } from "../../parts/renewers.ts";
import { SEVERITIES } from "../../parts/status.tsx";
import { DAY_MS } from "../../parts/time.ts";
import { Unavailable, useWhyNot } from "../../parts/unavailable.tsx";
import { CommandDifference, CopyCommandAction, OwnerAction, RenewAction } from "./command-actions.tsx";
import { RotateKeyAction } from "./key-rotation.tsx";
import { LatestRotation } from "./latest-rotation.tsx";
import { Readiness, RotateAction } from "./rotate-action.tsx";
import { ActiveSnoozes, SnoozeAction } from "./snooze-action.tsx";

type Asset = Schemas["AssetDetails"];
type Violation = Schemas["Violation"];

/** Number of failing checks in the box. The card below lists all. */
const MAX_SHOWN_VIOLATIONS = 5;

const useStyles = makeStyles({
  // A field set groups the actions for screen readers. It has no frame.
  actions: {
    border: "none",
    margin: 0,
    padding: 0,
    minWidth: 0,
    display: "flex",
    flexWrap: "wrap",
    alignItems: "center",
    gap: tokens.spacingHorizontalM,
  },
});

/** The top of an asset's page: its problems, the next actions, and the steps of a rotation that the user started here. */
export function StatusCard({ asset }: { asset: Asset }) {
  const styles = useStyles();
  const may = useMay();
  const whyNot = useWhyNot();
  const [startedRotationId, setStartedRotationId] = useState<string>();
  // The same query as the card with the violations, so that they are loaded once.
  const query = { resource: asset.id, limit: 100 };
  const list = api.useInfiniteQuery("get", "/compliance/violations", { params: { query } }, BY_CURSOR);
  const open = (list.data?.pages ?? [])
    .flatMap(({ items }) => items)
    .filter(({ exempted }) => !exempted)
    .sort((a, b) => SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity));
  const name = assetTitle(asset);
  const nothingToExempt =
    list.data === undefined ? "The violations are not loaded." : "No check fails, so there is nothing to exempt.";
  const whyNoExemption = whyNot("createExemption") ?? (open.length === 0 ? nothingToExempt : undefined);
  // Which command it copies depends on the violations.
  const copyCommand = !list.isPending && <CopyCommandAction asset={asset} violation={open[0]} />;
  return (
    <>
      <Card title="Status">
        <ProblemBox asset={asset} violations={open} areViolationsKnown={list.data !== undefined} />
        {may("listAlertSnoozes") && <ActiveSnoozes assetId={asset.id} />}
        <Readiness asset={asset} />
        <fieldset className={styles.actions} aria-label="Next actions">
          {/* The service can't change a credential of a B2C tenant, so the command is the main action. */}
          {asset.source === "b2c" && copyCommand}
          {asset.type === "secret" && <RotateAction asset={asset} started={setStartedRotationId} />}
          {asset.type === "key" && asset.source === "keyVault" && <RotateKeyAction assetId={asset.id} name={name} />}
          <RenewAction asset={asset} name={name} />
          <SnoozeAction assetId={asset.id} name={name} />
          {whyNoExemption === undefined ? (
            <Exempt violations={open} about={name} />
          ) : (
            <Unavailable title="Exempt from check" reason={whyNoExemption} />
          )}
          <OwnerAction asset={asset} name={name} />
          {asset.source !== "b2c" && copyCommand}
        </fieldset>
        {!list.isPending && <CommandDifference asset={asset} violation={open[0]} />}
      </Card>
      <LatestRotation assetId={asset.id} startedRotationId={startedRotationId} />
    </>
  );
}

/** The problems of the asset, worst first. If there are none, says so. */
function ProblemBox({
  asset,
  violations,
  areViolationsKnown,
}: {
  asset: Asset;
  /** Open violations, most severe first. */
  violations: Violation[];
  areViolationsKnown: boolean;
}) {
  const { status, expiresOn, enabled, owner, stale, source } = asset;
  const isExpiring = status !== "healthy" && expiresOn !== null;
  const [worst] = violations;
  if (!isExpiring && worst === undefined && owner !== null && !stale)
    return (
      <MessageBar intent={areViolationsKnown ? "success" : "info"} layout="multiline">
        <MessageBarBody>
          <MessageBarTitle>{areViolationsKnown ? "No problems found" : "Not expiring soon"}</MessageBarTitle>
          <Expiry at={expiresOn} /> <Renewal asset={asset} />
        </MessageBarBody>
      </MessageBar>
    );
  const showViolations = (
    <Link onClick={() => document.getElementById("violations")?.scrollIntoView()}>Show violations</Link>
  );
  return (
    <MessageBar intent={intentOf(asset, worst)} layout="multiline">
      <MessageBarBody>
        <MessageBarTitle>{titleOf(asset, worst)}</MessageBarTitle>
        <Text block>
          <Expiry at={expiresOn} />{" "}
          {status === "expired" &&
            (enabled
              ? "It is still enabled. Anything that relies on it fails."
              : "It is disabled, so nothing can use it. Delete it if it is no longer needed.")}
        </Text>
        <Renewal asset={asset} />
        {violations.length > 0 && (
          <>
            <ul>
              {violations.slice(0, MAX_SHOWN_VIOLATIONS).map(({ id, title, severity }) => (
                <li key={id}>
                  {title} (severity: {severity})
                </li>
              ))}
            </ul>
            {violations.length > MAX_SHOWN_VIOLATIONS &&
              `${counted(violations.length - MAX_SHOWN_VIOLATIONS, "other check fails", "other checks fail")} too. `}
            {showViolations}
          </>
        )}
        {/* A credential without an owner fails a check, which is shown above. */}
        {owner === null && source === "keyVault" && (
          <Text block>It has no owner. Alerts, if a rule sends any, go to the recipients of the rule.</Text>
        )}
        {stale && <Text block>The last scan could not read all details, so the values below may be out of date.</Text>}
      </MessageBarBody>
    </MessageBar>
  );
}

/** How a certificate with a renewer is renewed, or since when its renewal is late and what to do. Empty for other assets. */
function Renewal({ asset: { renewal, status } }: { asset: Asset }) {
  if (renewal === undefined || renewal.renewedBy === "none" || status === "expired") return null;
  const { renewedBy, windowEnd, late } = renewal;
  const renewer = `Renewer: ${RENEWERS[renewedBy]}.`;
  if (late)
    return (
      <Text block>
        {renewer} It had to renew the certificate
        {windowEnd && (
          <>
            {" "}
            by <Instant at={windowEnd} /> (<Instant at={windowEnd} relative />)
          </>
        )}{" "}
        and did not. Find out why the renewer stopped, or select Renew to renew the certificate yourself.
      </Text>
    );
  return (
    <Text block>
      {renewer} It renews the certificate automatically
      {windowEnd && (
        <>
          , by <Instant at={windowEnd} />
        </>
      )}
      . No action is needed.
    </Text>
  );
}

/** Returns whether the asset expires within a day. A healthy one is renewed before. */
const expiresToday = ({ status, expiresOn }: Pick<Asset, "status" | "expiresOn">): boolean =>
  status !== "expired" && status !== "healthy" && expiresOn !== null && Date.parse(expiresOn) - Date.now() < DAY_MS;

/** Returns the color of the box, which is that of its worst problem (docs/design.md). */
function intentOf(asset: Asset, worst: Violation | undefined): "error" | "warning" | "info" {
  // A disabled asset can't be used, so its expiry has no effect.
  const risk = asset.enabled ? asset.status : "healthy";
  const isDue = risk === "expired" || (asset.enabled && expiresToday(asset));
  if (isDue || worst?.severity === "critical") return "error";
  return risk !== "healthy" || worst?.severity === "high" ? "warning" : "info";
}

/** Returns the title of the box, which names the worst problem. */
function titleOf(asset: Asset, worst: Violation | undefined): string {
  const { status, enabled, owner, renewal } = asset;
  if (status === "expired") return enabled ? "Expired" : "Expired and disabled";
  if (renewal?.late) return "Renewal is late";
  if (expiresToday(asset)) return "Expires within a day";
  if (status !== "healthy") return "Expires soon";
  if (worst !== undefined) return worst.title;
  if (owner !== null) return "Details may be out of date";
  return renewal === undefined || renewal.renewedBy === "none"
    ? "Not expiring soon, but without an owner"
    : "Renewed automatically, but without an owner";
}

const Expiry = ({ at }: { at: string | null }) =>
  at === null ? (
    "It never expires."
  ) : (
    <>
      {Date.parse(at) < Date.now() ? "Expired" : "Expires"} <Instant at={at} relative />, on <Instant at={at} />.
    </>
  );
