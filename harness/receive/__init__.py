"""Takes messages of others in: reading them is told apart from their job, which may be refused behind the ack.

fields.py, cloudevents.py   how a message is read; paths.py where in it something stands
take.py                     the steps of the transaction
"""

from harness.receive.cloudevents import CloudEvents
from harness.receive.fields import Fields
from harness.receive.take import Received, ReceiveState, take

__all__ = ["CloudEvents", "Fields", "ReceiveState", "Received", "take"]
