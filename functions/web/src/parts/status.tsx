import { Badge, makeStyles } from "@fluentui/react-components";
import {
  CheckmarkCircleRegular,
  DismissCircleRegular,
  ErrorCircleRegular,
  WarningRegular,
} from "@fluentui/react-icons";
import type { Schemas } from "../api/client.ts";

const useStyles = makeStyles({ badge: { flexShrink: 0 } });

type Status = Schemas["Asset"]["status"];

/** Asset statuses from worst to best. */
export const STATUSES = ["expired", "critical", "warning", "healthy"] as const satisfies Status[];

/**
 * The text of each status. The API's `critical` is "urgent" here, because violations have a severity with the name "critical".
 */
export const STATUS_TEXTS = {
  expired: "expired",
  critical: "urgent",
  warning: "warning",
  healthy: "healthy",
} as const satisfies Record<Status, string>;

/** Explanations of the statuses, for tooltips. */
const STATUS_MEANINGS = {
  expired: "the expiry date has passed",
  critical: "it expires within the first threshold of the settings, or the renewal of the certificate is very late",
  warning: "it expires within the second threshold of the settings, or the renewal of the certificate is late",
  healthy: "it expires later or never",
} as const satisfies Record<Status, string>;

/** Color and icon of each status. */
const STATUS_STYLES = {
  expired: { color: "danger", icon: <DismissCircleRegular /> },
  critical: { color: "severe", icon: <ErrorCircleRegular /> },
  warning: { color: "warning", icon: <WarningRegular /> },
  healthy: { color: "success", icon: <CheckmarkCircleRegular /> },
} as const;

type Severity = Schemas["Violation"]["severity"];
/** Severities of violations from worst to best. */
export const SEVERITIES = ["critical", "high", "medium", "low"] as const satisfies Severity[];
const SEVERITY_COLORS = { critical: "danger", high: "severe", medium: "warning", low: "informative" } as const;

/** The severity of a violation as text and color. */
export function SeverityBadge({ severity }: { severity: Severity }) {
  return (
    <Badge
      appearance="tint"
      className={useStyles().badge}
      color={SEVERITY_COLORS[severity]}
      title={`Severity of the violation: ${severity}`}
    >
      {severity}
    </Badge>
  );
}

/** The status of an asset as text, icon and color. */
export function StatusBadge({ status }: { status: Status }) {
  const { color, icon } = STATUS_STYLES[status];
  return (
    <Badge
      appearance="tint"
      color={color}
      icon={icon}
      className={useStyles().badge}
      title={`Status of the asset: ${STATUS_TEXTS[status]}: ${STATUS_MEANINGS[status]}`}
    >
      {STATUS_TEXTS[status]}
    </Badge>
  );
}
