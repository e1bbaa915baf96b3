import { makeStyles, tokens } from "@fluentui/react-components";
import { useMay } from "../../api/access.ts";
import { Card } from "../../parts/card.tsx";
import { View } from "../../parts/view.tsx";
import { Checklist } from "./checklist.tsx";
import { Coverage } from "./coverage.tsx";
import { ExpiredAndNext } from "./expired-and-next.tsx";
import { ExpiringSoon } from "./expiring-soon.tsx";
import { Health } from "./health.tsx";
import { LastScan } from "./last-scan.tsx";
import { NobodyNotified } from "./nobody-notified.tsx";
import { Notifications } from "./notifications.tsx";
import { PendingApprovals } from "./pending-approvals.tsx";
import { RecentChanges } from "./recent-changes.tsx";
import { Score } from "./score.tsx";

const useStyles = makeStyles({
  cards: {
    display: "grid",
    gridTemplateColumns: "repeat(auto-fit, minmax(min(100%, 360px), 1fr))",
    gap: tokens.spacingHorizontalL,
  },
});

/**
 * The Overview page, the first that opens: the coverage, what has expired, setup steps and pending approvals if there are any,
 * assets that expire soon, status, compliance score, notifications, changes and the last scan.
 */
export default function Overview() {
  const styles = useStyles();
  const may = useMay();
  return (
    <View title="Overview">
      <Coverage />
      <ExpiredAndNext />
      <NobodyNotified />
      {may("createAlertRule") && <Checklist />}
      {may("listApprovals") && <PendingApprovals />}
      <Card title="Expiring soon">
        <ExpiringSoon />
      </Card>
      <div className={styles.cards}>
        <Card title="Status of assets">
          <Health />
        </Card>
        <Card title="Compliance">
          <Score />
        </Card>
        <Card title="Notifications">
          <Notifications />
        </Card>
        <Card title="Recent changes">
          <RecentChanges />
        </Card>
        <Card title="Last scan">
          <LastScan />
        </Card>
      </div>
    </View>
  );
}
