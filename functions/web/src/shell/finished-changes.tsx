import {
  Button,
  Dialog,
  DialogActions,
  DialogBody,
  DialogContent,
  DialogSurface,
  DialogTitle,
  Text,
} from "@fluentui/react-components";
import { useEffect, useState } from "react";
import { type FinishedChange, onChangeFinished } from "../api/events.ts";
import { ProblemNotice } from "../parts/problem-notice.tsx";

/** Dialogs, over any view, with the results of changes whose form was closed before the response arrived. */
export function FinishedChanges() {
  const [changes, setChanges] = useState<FinishedChange[]>([]);
  useEffect(() => onChangeFinished((change) => setChanges((before) => [...before, change])), []);
  // One dialog at a time. Closing it shows the next result.
  const [first, ...others] = changes;
  return (
    <Dialog modalType="alert" open={first !== undefined}>
      <DialogSurface>
        {first && (
          <DialogBody>
            <DialogTitle>{first.title}</DialogTitle>
            <DialogContent>
              {first.problem ? (
                <ProblemNotice problem={first.problem} />
              ) : (
                <Text block>The form was closed, but the change was already sent. It is now complete.</Text>
              )}
              {first.outcome}
            </DialogContent>
            <DialogActions>
              <Button appearance="primary" onClick={() => setChanges(others)}>
                Close
              </Button>
            </DialogActions>
          </DialogBody>
        )}
      </DialogSurface>
    </Dialog>
  );
}
