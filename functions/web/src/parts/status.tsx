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
      // "critical" is also a status of assets.
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
      // "critical" is also a severity of violations.
      title={`Status of the asset: ${status}`}
    >
      {status}
    </Badge>
  );
}
