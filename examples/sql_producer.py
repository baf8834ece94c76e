"""A producer that speaks SQL only: a trigger enqueues a job for every new row, in the transaction of the row."""

import asyncio

import psycopg

from onceward import Onceward
from onceward.dsn import resolve_dsn
from onceward.worker import Worker

app = Onceward()

SQL = """
create table signup (email text primary key);

create function welcome() returns trigger language plpgsql as $$
begin
  perform onceward.enqueue('send_welcome', jsonb_build_object('email', new.email), p_key => new.email);
  return new;
end;
$$;

create trigger welcome after insert on signup for each row execute function welcome();

insert into signup values ('ada@example.com'), ('bob@example.com');
"""


@app.task
async def send_welcome(email: str) -> None:
    print(f"welcome, {email}")


if __name__ == "__main__":
    with psycopg.connect(resolve_dsn()) as connection:
        connection.execute(SQL)
    asyncio.run(Worker(app, concurrency=1).drain())

# Output:
# welcome, ada@example.com
# welcome, bob@example.com
