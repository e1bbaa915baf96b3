import { MessageBar, MessageBarBody } from "@fluentui/react-components";
import { useEffect, useState } from "react";
import { onWaiting } from "../api/events.ts";
import { useStyles } from "./styles.ts";

/** Says that a call waits, since there were too many in a minute or an hour, and until when. */
export function Waiting() {
  const styles = useStyles();
  const [until, waitUntil] = useState<Date>();
  useEffect(() => onWaiting(waitUntil), []);
  useEffect(() => {
    if (!until) return undefined;
    const timer = setTimeout(() => waitUntil(undefined), Math.max(0, until.getTime() - Date.now()) + 1_000);
    return () => clearTimeout(timer);
  }, [until]);
  // A screen reader tells of what comes into a region that was there before.
  return (
    <div role="status" className={styles.waiting}>
      {until && (
        <MessageBar intent="info" layout="multiline">
          <MessageBarBody>
            There were too many calls. This page goes on by itself at {until.toLocaleTimeString()}. Until then it shows
            what it had read before.
          </MessageBarBody>
        </MessageBar>
      )}
    </div>
  );
}
